/** Utilities for elements. What changes often is changed in place, so that the focus stays where it is. */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} attributes
 * @param {...(Node | string | null)} children
 */
export function h(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** As `h`, for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(element, name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Sets an attribute if it differs; removes it if the value is null or false. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value))
    element.setAttribute(name, value === true ? '' : String(value));
}

/** Sets the text if it differs, so that a screen reader does not repeat it. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`The page has no ${id}`);
  return element;
}

/** @param {string} name for screen readers, with the object of the action */
export function button(text, name, onClick, attributes = {}) {
  const element = h('button', { type: 'button', 'aria-label': name, ...attributes }, text);
  element.addEventListener('click', onClick);
  return element;
}

/** A moment in local time. @param {string} moment in ISO 8601 */
export function timeOf(moment) {
  const text = new Date(moment).toLocaleString('en-GB', { dateStyle: 'short', timeStyle: 'short' });
  return h('time', { datetime: moment }, text);
}

/** If the focused element was removed, focuses the first button in the section's list, or an input of its form. */
export function focusAgain(section) {
  if (document.activeElement !== document.body) return;
  const items = [...section.querySelectorAll('li button'), ...section.querySelectorAll('form input')];
  items.find((item) => item.checkVisibility())?.focus();
}

/** Changes a section's list; if the focused element is removed, focuses its successor and keeps the scroll position. */
export function changeList(section, list, change) {
  const had = document.activeElement;
  const place = [...list.children].findIndex((item) => item.contains(had));
  const beforePx = had.getBoundingClientRect().top;
  const isSeen = beforePx >= 0 && beforePx < innerHeight;
  change();
  if (place === -1) return;
  // Browsers only keep the position of the top of the window, which may be above the list.
  if (isSeen && had.isConnected) scrollBy(0, had.getBoundingClientRect().top - beforePx);
  if (document.activeElement !== document.body) return;
  const next = list.children[Math.min(place, list.children.length - 1)]?.querySelector('button');
  if (next?.checkVisibility()) next.focus({ preventScroll: true });
  else focusAgain(section);
}

/** Keeps one child for each key, in order; makes new ones and removes old ones. */
export class KeyedList {
  /** Numbers of the last update. */
  changes = { added: 0, removed: 0 };
  #parent;
  #make;
  #views = new Map();

  constructor(parent, make) {
    this.#parent = parent;
    this.#make = make;
  }

  /** @param {readonly (readonly [string, any])[]} entries */
  update(entries) {
    const wanted = new Set(entries.map(([key]) => key));
    const before = this.#views.size;
    for (const [key, { element }] of this.#views) {
      if (wanted.has(key)) continue;
      element.remove();
      this.#views.delete(key);
    }
    const kept = this.#views.size;
    entries.forEach(([key, value], place) => {
      const view = this.#views.get(key) ?? this.#make(key, value);
      this.#views.set(key, view);
      view.update(value);
      if (this.#parent.children[place] !== view.element) {
        this.#parent.insertBefore(view.element, this.#parent.children[place] ?? null);
      }
    });
    this.changes = { added: this.#views.size - kept, removed: before - kept };
  }
}
