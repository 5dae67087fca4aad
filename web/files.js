/** Volumes, folders and files: browse, upload, download, watch. */

import { button, byId, h, setText, timeOf } from './dom.js';
import { formatBytes } from './format.js';

const PAGE = 200;

export class FilesView {
  #cluster;
  #onWatch;
  #onVolume;
  #onProblem;
  #place = null;
  /** The volume that `onVolume` was last called with. */
  #reportedVolume = null;

  /**
   * @param {object} parts
   * @param {import('./cluster.js').Cluster} parts.cluster
   * @param {(path: string) => void} parts.onWatch
   * @param {(volume: string) => void} parts.onVolume called with the volume shown, also for a snapshot of it
   * @param {(error: Error) => void} parts.onProblem
   */
  constructor({ cluster, onWatch, onVolume, onProblem }) {
    this.#cluster = cluster;
    this.#onWatch = onWatch;
    this.#onVolume = onVolume;
    this.#onProblem = onProblem;
    const form = byId('upload-form');
    const input = byId('upload-input');
    input.addEventListener('change', () =>
      this.#upload([...input.files]).then(() => {
        input.value = '';
      }),
    );
    form.addEventListener('submit', (event) => event.preventDefault());
    form.addEventListener('dragover', (event) => {
      event.preventDefault();
      form.classList.add('over');
    });
    form.addEventListener('dragleave', () => form.classList.remove('over'));
    form.addEventListener('drop', (event) => {
      event.preventDefault();
      form.classList.remove('over');
      void this.#upload([...event.dataTransfer.files]);
    });
  }

  async start() {
    this.#reportedVolume = null;
    await this.#guarded(async () => {
      if (this.#place === null) {
        const { volumes } = await this.#cluster.query({ kind: 'volumes' });
        const [first] = volumes;
        if (first === undefined) {
          setText(byId('listing'), 'There is no volume yet: leasehold volume create NAME creates one.');
          return;
        }
        this.#place = { volume: first.name, names: [] };
      }
      await this.#show();
    });
  }

  async refresh() {
    if (this.#place !== null) await this.#guarded(() => this.#show());
  }

  /** @param {string} name of a volume, or `VOLUME@NAME` of a snapshot */
  async browse(name) {
    await this.#open({ volume: name, names: [] });
  }

  /** A snapshot was removed: if it is shown, shows its volume. */
  async snapshotRemoved(snapshot) {
    if (this.#place?.volume === snapshot) await this.browse(volumeOf(snapshot));
  }

  async #open(place) {
    this.#place = place;
    await this.#guarded(() => this.#show());
  }

  async #show() {
    const { volume, names } = this.#place;
    const path = `${this.#cluster.filesPath(this.#place, true)}?limit=${PAGE}`;
    const { entries, more } = await this.#cluster.json(path, { headers: { accept: 'application/json' } });
    const { volumes, unavailable = [] } = await this.#cluster.query({ kind: 'volumes' });
    this.#crumbs(
      volumes.map((one) => one.name),
      volume,
      names,
    );
    const own = volumes.find((one) => one.name === volumeOf(volume) && one.catalog !== undefined);
    // The listing does not wait for it: a server that does not answer delays the status.
    void this.#guarded(() => this.#showCatalogs(own?.name, unavailable));
    const isSnapshot = volume !== volumeOf(volume);
    byId('upload-form').hidden = isSnapshot;
    if (volumeOf(volume) !== this.#reportedVolume) {
      this.#reportedVolume = volumeOf(volume);
      this.#onVolume(this.#reportedVolume);
    }
    const rows = entries.map((entry) => this.#row(entry));
    byId('listing').replaceChildren(
      ...(isSnapshot ? [this.#snapshotNote(volume)] : []),
      rows.length === 0
        ? h('p', { class: 'quiet' }, 'This folder is empty.')
        : h(
            'table',
            {},
            h('caption', { class: 'unseen' }, `Files in ${volume}:/${names.join('/')}`),
            h(
              'thead',
              {},
              h(
                'tr',
                {},
                ...['Name', 'Size', 'Changed', 'Actions'].map((text) => h('th', { scope: 'col' }, text)),
              ),
            ),
            h('tbody', {}, ...rows),
          ),
      ...(more ? [h('p', { class: 'quiet' }, `Only the first ${PAGE} names are shown.`)] : []),
    );
  }

  #snapshotNote(snapshot) {
    const volume = volumeOf(snapshot);
    const back = button('Back to the volume', `Back to the volume ${volume}`, () => this.browse(volume));
    return h('p', { class: 'past' }, `${snapshot}: the volume at the time of the snapshot. `, back);
  }

  /** @param {string | undefined} own the shown volume, if it has a catalog of its own @param {string[]} unavailable */
  async #showCatalogs(own, unavailable) {
    const sentences = [];
    if (own !== undefined) {
      const { catalogs = [] } = await this.#cluster.json('/v1/status');
      // Another volume was chosen meanwhile.
      if (volumeOf(this.#place.volume) !== own) return;
      const { members = [], primary = null } = catalogs.find(({ name }) => name === own) ?? {};
      sentences.push(
        `${own} has a catalog of its own, on ${members.join(', ')}; ${primary === null ? 'it has no primary now' : `its primary is ${primary}`}.`,
      );
    }
    if (unavailable.length > 0)
      sentences.push(`Unavailable, because their catalogs do not answer: ${unavailable.join(', ')}.`);
    const text = byId('catalogs');
    setText(text, sentences.join(' '));
    text.hidden = sentences.length === 0;
  }

  #crumbs(volumes, volume, names) {
    const select = h(
      'select',
      { 'aria-label': 'Volume' },
      ...[...new Set([...volumes, volume])].map((name) =>
        h('option', { value: name, selected: name === volume }, name),
      ),
    );
    select.addEventListener('change', () => this.browse(select.value));
    const steps = ['/', ...names].map((name, depth) => {
      const isLast = depth === names.length;
      const step = button(name, depth === 0 ? `Top folder of ${volume}` : `Folder ${name}`, () =>
        this.#open({ volume, names: names.slice(0, depth) }),
      );
      if (isLast) step.setAttribute('aria-current', 'location');
      return h('li', {}, step);
    });
    byId('crumbs').replaceChildren(select, h('ol', {}, ...steps));
  }

  #row({ name, kind, size, modified, attached }) {
    const place = { volume: this.#place.volume, names: [...this.#place.names, name] };
    const shown = `${place.volume}:/${place.names.join('/')}`;
    const isFolder = kind === 'directory';
    const kindText = attached === undefined ? kind : `volume ${attached}`;
    const title = isFolder
      ? button(`${name}/`, `Open folder ${name}`, () => this.#open(place), { class: 'link' })
      : name;
    const isPast = place.volume !== volumeOf(place.volume);
    const acts =
      kind === 'file'
        ? [
            ...(isPast ? [] : [button('Watch', `Watch ${name}`, () => this.#onWatch(shown))]),
            button('Download', `Download ${name}`, () => this.#guarded(() => this.#download(place, name))),
          ]
        : [];
    return h(
      'tr',
      {},
      h('th', { scope: 'row' }, title),
      h('td', { class: 'number' }, kind === 'file' ? formatBytes(size) : kindText),
      h('td', {}, timeOf(modified)),
      h('td', { class: 'acts' }, ...acts),
    );
  }

  /** The browser cannot download with a token by itself, so the contents pass through this page's memory. */
  async #download(place, name) {
    const path = this.#cluster.filesPath(place);
    const link = h('a', { download: name, rel: 'noopener' });
    if (this.#cluster.token === '') {
      link.href = `${this.#cluster.base}${path}`;
      link.click();
      return;
    }
    const contents = await (await this.#cluster.request(path)).blob();
    link.href = URL.createObjectURL(contents);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  async #upload(files) {
    const status = byId('upload-status');
    for (const file of files) {
      setText(status, `Storing ${file.name}, ${formatBytes(file.size)} …`);
      const place = { volume: this.#place.volume, names: [...this.#place.names, file.name] };
      const ok = await this.#guarded(() =>
        this.#cluster.request(this.#cluster.filesPath(place), {
          method: 'PUT',
          headers: { 'content-type': 'application/octet-stream' },
          body: file,
        }),
      );
      setText(
        status,
        ok ? `${file.name} is stored: a majority has it on disk.` : `${file.name} is not stored.`,
      );
    }
    await this.#guarded(() => this.#show());
  }

  async #guarded(work) {
    try {
      await work();
      return true;
    } catch (error) {
      this.#onProblem(error);
      return false;
    }
  }
}

function volumeOf(name) {
  return name.replace(/@.*/, '');
}
