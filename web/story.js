/** The acts and measurements of the demo, as its process reports them. */

import { byId, h, setAttribute, setText } from './dom.js';

const LINES_MAX = 8;
const SIGNS = { done: '✓', now: '▶', 'to-come': '·', failed: '✗' };
const WORDS = { done: 'done', now: 'now', 'to-come': 'still to come', failed: 'failed' };

export class StoryView {
  #body = byId('story-body');
  #acts = h('ol', { class: 'acts', 'aria-label': 'Acts' });
  #title = h('h3');
  #lines = h('ul', { class: 'lines', 'aria-live': 'polite' });
  #next;

  /** @param {() => void} onNext continues the demo */
  constructor(onNext) {
    this.#next = h('button', { type: 'button', hidden: true }, 'Continue');
    this.#next.addEventListener('click', onNext);
    this.#body.append(this.#acts, h('div', { class: 'act' }, this.#title, this.#lines, this.#next));
  }

  /** @param story null without a demo */
  update(story) {
    setAttribute(byId('story'), 'hidden', story === null);
    if (story === null) return;
    const { acts, waits } = story;
    const shown = acts.findLast(({ state }) => state !== 'to-come') ?? acts[0];
    this.#acts.replaceChildren(
      ...acts.map(({ title, state }) =>
        h(
          'li',
          { 'data-state': state, 'aria-current': state === 'now' ? 'step' : null },
          h('span', { class: 'sign', role: 'img', 'aria-label': WORDS[state] }, SIGNS[state]),
          title,
        ),
      ),
    );
    setText(this.#title, shown.title);
    this.#lines.replaceChildren(...shown.lines.slice(-LINES_MAX).map((line) => h('li', {}, line)));
    setAttribute(this.#next, 'hidden', !waits);
  }
}
