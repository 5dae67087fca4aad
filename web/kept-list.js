/** A list that other users change, too: the event stream reports revisions, and screen readers get the changes. */

import { byId, changeList, KeyedList, setText } from './dom.js';

export class KeptList {
  #section;
  #list;
  #items;
  #refresh;
  #revision = null;
  #busy = false;

  /**
   * @param {object} parts
   * @param {string} parts.section id of the section; its list is `SECTION-list`
   * @param {(one: any) => Element} parts.item
   * @param {() => Promise<string>} parts.refresh updates the list; resolves with a sentence on the changes, or empty
   */
  constructor({ section, list, item, refresh }) {
    this.#section = byId(section);
    this.#list = byId(list);
    this.#items = new KeyedList(this.#list, (_, one) => ({ element: item(one), update: () => {} }));
    this.#refresh = refresh;
  }

  /** @param {readonly (readonly [string, any])[]} entries @returns how many entries were added and removed */
  show(entries) {
    changeList(this.#section, this.#list, () => this.#items.update(entries));
    return this.#items.changes;
  }

  /** Another list is shown, without a known revision. */
  begin() {
    this.#revision = null;
  }

  /** @param {string} revision differs whenever the list differs */
  async revisionReported(revision) {
    if (revision === this.#revision || this.#busy) return;
    this.#busy = true;
    try {
      const changes = await this.#refresh();
      this.#revision = revision;
      if (changes !== '') setText(byId('kept-news'), changes);
    } catch (error) {
      // The stream continues at another server, which reports the same again; the stream itself reports a refusal.
      if (!(error instanceof Error)) throw error;
    } finally {
      this.#busy = false;
    }
  }
}
