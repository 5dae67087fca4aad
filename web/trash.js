/** The trash of a volume: removed files, which are kept for a while to be restored or deleted. */

import { ask } from './ask.js';
import { ProblemError } from './cluster.js';
import { button, byId, focusAgain, h, setText, timeOf } from './dom.js';
import { formatBytes, formatDuration } from './format.js';
import { KeptList } from './kept-list.js';

const PAGE = 25;

export class TrashView {
  #cluster;
  #say;
  #onProblem;
  #onRestored;
  #volume = null;
  #path = '/';
  /** Where this page begins, followed by the pages before it. */
  #starts = [null];
  /** Where the next page begins; null if there is none. */
  #next = null;
  #list;
  #pages;

  /**
   * @param {object} parts
   * @param {import('./cluster.js').Cluster} parts.cluster
   * @param {(text: string) => void} parts.say
   * @param {(error: Error) => void} parts.onProblem
   * @param {() => void} parts.onRestored a file was restored
   */
  constructor({ cluster, say, onProblem, onRestored }) {
    this.#cluster = cluster;
    this.#say = say;
    this.#onProblem = onProblem;
    this.#onRestored = onRestored;
    this.#list = new KeptList({
      ...{ section: 'trash', list: 'trash-list' },
      item: (file) => this.#item(file),
      refresh: () => this.#describeChanges(),
    });
    this.#pages = {
      back: button('Back', 'Page before', () => this.#showPage(this.#starts.slice(1))),
      number: h('span'),
      on: button('Next', 'Next page', () => this.#showPage([this.#next, ...this.#starts])),
    };
    byId('trash-pages').replaceChildren(this.#pages.back, this.#pages.number, this.#pages.on);
    byId('trash-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#path = pathOf(byId('trash-path').value);
      byId('trash-path').value = this.#path;
      this.#starts = [null];
      void this.#guarded(() => this.#show());
    });
    byId('trash-empty').addEventListener('click', () => this.#guarded(() => this.#empty()));
  }

  /** @param {string} volume */
  async open(volume) {
    if (this.#volume !== volume) {
      this.#path = '/';
      byId('trash-path').value = '/';
    }
    this.#volume = volume;
    this.#starts = [null];
    this.#list.begin();
    await this.#guarded(() => this.#show());
  }

  /** The event stream reports the list's revision. @param {string} revision */
  revisionReported(revision) {
    void this.#list.revisionReported(revision);
  }

  /** @returns {Promise<string>} a sentence on what other users changed on this page */
  async #describeChanges() {
    const { added, removed } = (await this.#show()) ?? { added: 0, removed: 0 };
    const files = (count) => (count === 1 ? '1 file is' : `${count} files are`);
    return [
      ...(added > 0 ? [`${files(added)} new in the trash of ${this.#volume}.`] : []),
      ...(removed > 0 ? [`${files(removed)} gone from the trash of ${this.#volume}.`] : []),
    ].join(' ');
  }

  /** @returns the numbers of new and removed files on the page; undefined if another page is shown by now */
  async #show() {
    const volume = this.#volume;
    const [starts, path] = [this.#starts, this.#path];
    const [after] = starts;
    const search = new URLSearchParams({ path: this.#path, limit: `${PAGE}`, ...(after && { after }) });
    const [{ files, more, next }, { volumes }] = await Promise.all([
      this.#cluster.json(`${this.#url()}?${search}`),
      this.#cluster.query({ kind: 'volumes' }),
    ]);
    if (volume !== this.#volume || starts !== this.#starts || path !== this.#path) return undefined;
    // Everything on the page was removed: the page before has files.
    if (files.length === 0 && this.#starts.length > 1) {
      this.#starts = starts.slice(1);
      return this.#show();
    }
    const about = volumes.find(({ name }) => name === volume);
    setText(byId('trash-about'), about === undefined ? '' : sentenceOf(about));
    const changes = this.#list.show(files.map((file) => [`${file.file} ${file.path} ${file.removed}`, file]));
    setText(
      byId('trash-none'),
      files.length > 0 ? '' : `The trash has no files that were ${placeText(volume, this.#path)}.`,
    );
    byId('trash-empty').disabled = files.length === 0;
    this.#next = more ? next : null;
    const before = this.#starts.length - 1;
    byId('trash-pages').hidden = this.#next === null && before === 0;
    this.#pages.back.disabled = before === 0;
    this.#pages.on.disabled = this.#next === null;
    setText(this.#pages.number, `Page ${before + 1}`);
    return changes;
  }

  async #showPage(starts) {
    this.#starts = starts;
    await this.#guarded(() => this.#show());
    // Without a further page that way, the button is disabled and loses the focus.
    focusAgain(byId('trash'));
  }

  #item(file) {
    const { path, size, removed, removedBy, keptUntil } = file;
    const [name, where] = [path.slice(path.lastIndexOf('/') + 1), path.slice(0, path.lastIndexOf('/') + 1)];
    const id = `trashed-${file.file}`;
    const act = (text, what, work) =>
      button(text, `${what} ${path}`, () => this.#guarded(work), { 'aria-describedby': id });
    return h(
      'li',
      {},
      h(
        'div',
        {},
        h('p', { class: 'title' }, h('b', {}, name), ' ', h('span', {}, `from ${this.#volume}:${where}`)),
        h(
          'p',
          { id, class: 'quiet' },
          `${formatBytes(size)}, removed `,
          timeOf(removed),
          `${removedBy === undefined ? '' : ` by ${removedBy}`}, kept until `,
          timeOf(keptUntil),
        ),
      ),
      h(
        'div',
        { class: 'acts', 'data-needs': 'write' },
        act('Restore', 'Restore', () => this.#restore(file)),
        act('Restore as …', 'Restore under another name', () => this.#restoreAs(file)),
        act('Delete', 'Delete permanently', () => this.#remove(file)),
      ),
    );
  }

  async #restore(file, to = null) {
    try {
      const search = to === null ? '' : `?${new URLSearchParams({ to })}`;
      const { path } = await this.#cluster.json(`${this.#url(file)}/restore${search}`, { method: 'POST' });
      this.#say(`Restored ${this.#volume}:${path}.`);
    } catch (error) {
      if (!(error instanceof ProblemError) || error.code !== 'exists') throw error;
      return this.#restoreAs(file, `${error.message}. Choose another name.`, to ?? file.path);
    }
    this.#onRestored();
    await this.#refresh();
  }

  async #restoreAs(file, text = 'Missing directories are created.', taken = null) {
    const to = await ask({
      ...{ title: `Restore ${file.path} under another name`, text, act: 'Restore' },
      ...{ label: `Path in ${this.#volume}`, value: taken === null ? file.path : restoredName(taken) },
    });
    if (to !== null) await this.#restore(file, pathOf(to));
  }

  async #remove(file) {
    const answer = await ask({
      title: `Delete ${file.path} permanently?`,
      text: `${formatBytes(file.size)} are deleted permanently.`,
      act: 'Delete it permanently',
    });
    if (answer === null) return;
    await this.#cluster.request(this.#url(file), { method: 'DELETE' });
    this.#say(`${file.path} was deleted permanently.`);
    await this.#refresh();
  }

  async #empty() {
    const place = `${this.#volume}:${this.#path}`;
    const answer = await ask({
      title: 'Empty the trash?',
      text: `All files in the trash that were ${placeText(this.#volume, this.#path)} are deleted permanently, including those on other pages.`,
      act: 'Empty it',
    });
    if (answer === null) return;
    const search = new URLSearchParams({ path: this.#path });
    // A large trash takes several requests.
    let status = 202;
    while (status === 202)
      ({ status } = await this.#cluster.request(`${this.#url()}?${search}`, { method: 'DELETE' }));
    this.#say(`The trash of ${place} is empty.`);
    await this.#refresh();
  }

  /** Refreshes the page, and restores the focus if its element was removed. */
  async #refresh() {
    await this.#show();
    focusAgain(byId('trash'));
  }

  #url(file = null) {
    return `/v1/trash/${encodeURIComponent(this.#volume)}${file === null ? '' : `/${file.file}`}`;
  }

  async #guarded(work) {
    try {
      await work();
    } catch (error) {
      this.#onProblem(error);
    }
  }
}

function sentenceOf({ name, trashMs, trashedInodes, trashedBytes }) {
  const rule =
    trashMs === 0
      ? `${name} has no trash: leasehold volume set ${name} --trash 30d adds one.`
      : `${name} keeps removed files for ${formatDuration(trashMs)}.`;
  const count = `${trashedInodes} ${trashedInodes === 1 ? 'file' : 'files'}`;
  return trashedInodes === 0 ? rule : `${rule} There are ${count} with ${formatBytes(trashedBytes)}.`;
}

function placeText(volume, path) {
  return path === '/' ? `in ${volume}` : `${volume}:${path} or below it`;
}

/** @returns the normalized path from the volume's root */
function pathOf(text) {
  return `/${text
    .trim()
    .split('/')
    .filter((name) => name !== '')
    .join('/')}`;
}

/** @returns a free-looking name: `/docs/a (restored).txt` for `/docs/a.txt` */
function restoredName(path) {
  const [, stem, ending] = /^(.*\/.[^/]*?)(\.[^./]+)?$/s.exec(path);
  return `${stem} (restored)${ending ?? ''}`;
}
