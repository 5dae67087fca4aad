/** Snapshots of a volume: its state at one moment, for browsing. */

import { ask } from './ask.js';
import { button, byId, focusAgain, h, setText, timeOf } from './dom.js';
import { KeptList } from './kept-list.js';

export class SnapshotsView {
  #cluster;
  #say;
  #onProblem;
  #onBrowse;
  #onRemoved;
  #volume = null;
  #list;
  #names = [];

  /**
   * @param {object} parts
   * @param {import('./cluster.js').Cluster} parts.cluster
   * @param {(text: string) => void} parts.say
   * @param {(error: Error) => void} parts.onProblem
   * @param {(snapshot: string) => void} parts.onBrowse shows `VOLUME@NAME`
   * @param {(snapshot: string) => void} parts.onRemoved `VOLUME@NAME` is removed
   */
  constructor({ cluster, say, onProblem, onBrowse, onRemoved }) {
    this.#cluster = cluster;
    this.#say = say;
    this.#onProblem = onProblem;
    this.#onBrowse = onBrowse;
    this.#onRemoved = onRemoved;
    this.#list = new KeptList({
      ...{ section: 'snapshots', list: 'snapshot-list' },
      item: (one) => this.#item(one),
      refresh: () => this.#describeChanges(),
    });
    byId('snapshot-form').addEventListener('submit', (event) => {
      event.preventDefault();
      void this.#guarded(() => this.#create());
    });
  }

  /** @param {string} volume */
  async open(volume) {
    this.#volume = volume;
    this.#list.begin();
    await this.#guarded(() => this.#show());
  }

  /** The event stream reports the list's revision. @param {string} revision */
  revisionReported(revision) {
    void this.#list.revisionReported(revision);
  }

  async #show() {
    const volume = this.#volume;
    const { snapshots } = await this.#cluster.json(this.#url());
    if (volume !== this.#volume) return;
    setText(byId('snapshots-none'), snapshots.length > 0 ? '' : `There is no snapshot of ${volume}.`);
    this.#list.show(snapshots.toReversed().map((one) => [`${one.snapshot} ${one.made}`, one]));
    this.#names = snapshots.map(({ snapshot }) => snapshot);
  }

  /** @returns {Promise<string>} a sentence on snapshots that other users made or removed */
  async #describeChanges() {
    const [volume, before] = [this.#volume, this.#names];
    await this.#show();
    if (volume !== this.#volume) return '';
    const removed = before.filter((name) => !this.#names.includes(name));
    for (const name of removed) this.#onRemoved(name);
    const added = this.#names.filter((name) => !before.includes(name));
    return [
      ...added.map((name) => `Snapshot ${name} is new.`),
      ...removed.map((name) => `Snapshot ${name} is gone.`),
    ].join(' ');
  }

  #item({ snapshot, name, made }) {
    const remove = () => this.#guarded(() => this.#remove(snapshot, name));
    return h(
      'li',
      {},
      h(
        'div',
        {},
        h('p', { class: 'title' }, h('b', {}, name)),
        h('p', { class: 'quiet' }, 'as of ', timeOf(made)),
      ),
      h(
        'div',
        { class: 'acts' },
        button('Browse', `Browse ${snapshot}`, () => this.#onBrowse(snapshot)),
        button('Remove', `Remove ${snapshot}`, remove, { 'data-needs': 'admin' }),
      ),
    );
  }

  async #create() {
    const input = byId('snapshot-name');
    const name = input.value.trim();
    await this.#cluster.request(this.#url(name), { method: 'PUT' });
    input.value = '';
    this.#say(`Created the snapshot ${this.#volume}@${name} of everything acknowledged before.`);
    await this.#show();
  }

  async #remove(snapshot, name) {
    const answer = await ask({
      title: `Remove ${snapshot}?`,
      text: 'Data that exists only in this snapshot is deleted permanently.',
      act: 'Delete it permanently',
    });
    if (answer === null) return;
    await this.#cluster.request(this.#url(name), { method: 'DELETE' });
    this.#say(`${snapshot} is removed.`);
    this.#onRemoved(snapshot);
    await this.#show();
    focusAgain(byId('snapshots'));
  }

  #url(name = null) {
    return `/v1/snapshots/${encodeURIComponent(this.#volume)}${name === null ? '' : `/${encodeURIComponent(name)}`}`;
  }

  async #guarded(work) {
    try {
      await work();
    } catch (error) {
      this.#onProblem(error);
    }
  }
}
