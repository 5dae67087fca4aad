/** Events, newest first: a sentence each, which says why no data was lost. */

import { byId, h, setAttribute } from './dom.js';
import { formatTime } from './format.js';

const SHOWN_MAX = 120;
const SIGNS = { good: '✓', neutral: '·', bad: '!' };
const WORDS = { good: 'good news', neutral: 'news', bad: 'trouble' };

export class EventsView {
  #list = byId('happening-list');
  #known = new Map();

  /** Replaces all events. */
  reset(events) {
    this.#known.clear();
    this.#list.replaceChildren();
    for (const event of events) this.add(event);
    this.#showIfEmpty();
  }

  add(event) {
    const element = itemOf(event);
    const known = this.#known.get(event.id);
    if (known !== undefined) {
      known.element.replaceWith(element);
    } else {
      const later = [...this.#list.children].find((item) => Number(item.dataset.at) <= event.atMs);
      this.#list.insertBefore(element, later ?? null);
    }
    this.#known.set(event.id, { element, event });
    while (this.#list.children.length > SHOWN_MAX) {
      const oldest = this.#list.lastElementChild;
      this.#known.delete(oldest.dataset.id);
      oldest.remove();
    }
    this.#showIfEmpty();
  }

  /** Why writes waited, in a few words; empty if unknown. */
  reason(sinceMs) {
    const recent = [...this.#known.values()].map(({ event }) => event).filter(({ atMs }) => atMs >= sinceMs);
    const elected = recent.findLast(({ kind }) => kind === 'primary-elected');
    const lease = /the lease of \S+ had ended/.exec(elected?.text ?? '');
    if (lease !== null) return `until ${lease[0]}`;
    const silent = recent.findLast(({ kind }) => kind === 'silent');
    return silent === undefined ? '' : `${silent.about} does not answer`;
  }

  #showIfEmpty() {
    setAttribute(byId('no-happenings'), 'hidden', this.#known.size > 0);
  }
}

function itemOf({ id, atMs, server, mood, text, path, file, epoch }) {
  const name = path ?? (file === 0 ? 'the catalog' : `file ${file}`);
  const [before, after] = text.split('{file}');
  return h(
    'li',
    { class: 'happening', 'data-mood': mood, 'data-id': id, 'data-at': String(atMs) },
    h('span', { class: 'sign', role: 'img', 'aria-label': WORDS[mood] ?? 'news' }, SIGNS[mood] ?? '·'),
    h(
      'div',
      {},
      after === undefined ? h('p', {}, text) : h('p', {}, before, h('b', {}, name), after),
      h(
        'p',
        { class: 'when' },
        h('time', { datetime: new Date(atMs).toISOString() }, formatTime(atMs)),
        ` · reported by ${server}${epoch === undefined ? '' : ` · epoch ${epoch}`}`,
      ),
    ),
  );
}
