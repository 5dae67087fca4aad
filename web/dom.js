/** Small things to do with elements. What changes often is changed in place, so that focus stays where it is. */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} attributes
 * @param {...(Node | string | null)} children
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** As `h`, for pictures. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Sets an attribute where it is different; takes it away where the value is null or false. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value))
    element.setAttribute(name, value === true ? '' : String(value));
}

/** Sets the text where it is different, so that nobody is told the same twice. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @returns the element with this id, which the page has */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`The page has no ${id}`);
  return element;
}

/** A button that says what it does, and for whom. */
export function button(text, name, onClick, attributes = {}) {
  const element = h('button', { type: 'button', 'aria-label': name, ...attributes }, text);
  element.addEventListener('click', onClick);
  return element;
}

/** A moment as the reader's clock has it. @param {string} moment as ISO 8601 has it */
export function timeOf(moment) {
  const text = new Date(moment).toLocaleString('en-GB', { dateStyle: 'short', timeStyle: 'short' });
  return h('time', { datetime: moment }, text);
}

/** Where what had the focus is gone, the first thing in the section's list gets it, or in its form. */
export function focusAgain(section) {
  if (document.activeElement !== document.body) return;
  const items = [...section.querySelectorAll('li button'), ...section.querySelectorAll('form input')];
  items.find((item) => item.checkVisibility())?.focus();
}

/** Keeps one child for each key, in order; makes those that are new and removes those that are gone. */
export class KeyedList {
  #parent;
  #make;
  #views = new Map();

  /**
   * @param {Element} parent
   * @param {(key: string) => { element: Element, update: (value: any) => void }} make
   */
  constructor(parent, make) {
    this.#parent = parent;
    this.#make = make;
  }

  /** @param {readonly (readonly [string, any])[]} entries */
  update(entries) {
    const wanted = new Set(entries.map(([key]) => key));
    for (const [key, { element }] of this.#views) {
      if (wanted.has(key)) continue;
      element.remove();
      this.#views.delete(key);
    }
    entries.forEach(([key, value], place) => {
      const view = this.#views.get(key) ?? this.#make(key);
      this.#views.set(key, view);
      view.update(value);
      if (this.#parent.children[place] !== view.element) {
        this.#parent.insertBefore(view.element, this.#parent.children[place] ?? null);
      }
    });
  }
}
