/** A list that others change, too: it is shown anew when the stream says that it is another, and whoever only listens is told. */

import { byId, changeList, KeyedList, setText } from './dom.js';

export class KeptList {
  #section;
  #list;
  #items;
  #refresh;
  #heard = null;
  #busy = false;

  /**
   * @param {object} parts
   * @param {string} parts.section id of the section; its list is `SECTION-list`
   * @param {(one: any) => Element} parts.item
   * @param {() => Promise<string>} parts.refresh shows what there is now; resolves with a sentence of what is new, empty where nothing is
   */
  constructor({ section, list, item, refresh }) {
    this.#section = byId(section);
    this.#list = byId(list);
    this.#items = new KeyedList(this.#list, (_, one) => ({ element: item(one), update: () => {} }));
    this.#refresh = refresh;
  }

  /** @param {readonly (readonly [string, any])[]} entries @returns how many are new, and how many are gone */
  show(entries) {
    changeList(this.#section, this.#list, () => this.#items.update(entries));
    return this.#items.changes;
  }

  /** Another list is shown: nothing was heard of it so far. */
  begin() {
    this.#heard = null;
  }

  /** @param {string} revision another text whenever the list is another */
  async heard(revision) {
    if (revision === this.#heard || this.#busy) return;
    this.#busy = true;
    try {
      const news = await this.#refresh();
      this.#heard = revision;
      if (news !== '') setText(byId('kept-news'), news);
    } catch (error) {
      // The stream goes on at another server, which says the same again; a refusal is told by the stream itself.
      if (!(error instanceof Error)) throw error;
    } finally {
      this.#busy = false;
    }
  }
}
