/** The state of one file: a seal whose rim is the remaining lease, in the colour of the epoch, and the replicas. */

import { button, byId, h, KeyedList, setAttribute, setText, svg } from './dom.js';
import { epochHue, formatSeconds } from './format.js';

const RADIUS = 70;
const RIM = 2 * Math.PI * RADIUS;
/** A lease's remaining time is shown in tenths of a second. */
const SHRINK_MS = 100;
const STATES = {
  current: ['●', 'current'],
  'catching-up': ['◐', 'catching up'],
  unreachable: ['○', 'silent'],
  'at-rest': ['◌', 'waits'],
};

export class FileView {
  #timing = { leaseMs: 1 };
  #actions;
  #file = null;
  #atMs = 0;
  #body = byId('file-body');
  #list;
  #rim;
  #epoch;
  #holder;
  #remaining;
  #sentence;
  #add;
  #addSelect;
  #drawn = '';
  /** The pending animation frame; null if none. */
  #frame = null;
  #shrinks = 0;

  /** @param {{ replica: (what: 'add' | 'remove', server: string) => void }} actions */
  constructor(actions) {
    this.#actions = actions;
    this.#rim = svg('circle', { class: 'rim', cx: 90, cy: 90, r: RADIUS, transform: 'rotate(-90 90 90)' });
    this.#epoch = svg('text', { class: 'epoch', x: 90, y: 62 });
    this.#holder = svg('text', { class: 'holder', x: 90, y: 99 });
    this.#remaining = svg('text', { class: 'left', x: 90, y: 126 });
    const seal = svg(
      'svg',
      { class: 'seal', viewBox: '0 0 180 180', 'aria-hidden': 'true', focusable: 'false' },
      svg('circle', { class: 'track', cx: 90, cy: 90, r: RADIUS }),
      this.#rim,
      this.#epoch,
      this.#holder,
      this.#remaining,
    );
    this.#sentence = h('p', { id: 'file-sentence', class: 'sentence' });
    const replicas = h('ul', { class: 'replicas', 'aria-label': 'Replicas' });
    this.#list = new KeyedList(replicas, (server) => this.#replica(server));
    this.#addSelect = h('select', { id: 'add-server', name: 'server' });
    this.#add = h(
      'form',
      { class: 'inline add-replica', hidden: true, 'data-needs': 'admin' },
      h('label', { for: 'add-server' }, 'Another replica on'),
      this.#addSelect,
      h('button', { type: 'submit' }, 'Add replica'),
    );
    this.#add.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#actions.replica('add', this.#addSelect.value);
    });
    this.#body.append(
      h(
        'div',
        { class: 'file' },
        seal,
        h('div', { class: 'file-facts' }, this.#sentence, replicas, this.#add),
      ),
    );
  }

  timing(timing) {
    this.#timing = timing;
  }

  update(file, servers) {
    this.#file = file;
    this.#atMs = performance.now();
    setText(this.#sentence, sentenceOf(file));
    const replicas = [...(file?.replicas ?? [])].sort((a, b) => (a.server < b.server ? -1 : 1));
    const newest = Math.max(0, ...replicas.map(({ version }) => version ?? 0));
    this.#list.update(
      replicas.map((replica) => [replica.server, { ...replica, newest, count: replicas.length, file }]),
    );
    const others = servers.filter(
      ({ id, membership }) => membership === 'in' && !replicas.some(({ server }) => server === id),
    );
    setAttribute(this.#add, 'hidden', file?.file == null || others.length === 0);
    const names = others.map(({ id }) => id);
    if (names.join() !== [...this.#addSelect.options].map(({ value }) => value).join()) {
      this.#addSelect.replaceChildren(...names.map((name) => h('option', { value: name }, name)));
    }
    const root = document.documentElement.style;
    root.setProperty('--epoch-hue', String(epochHue(file?.epoch ?? 0)));
    root.setProperty('--epoch-chroma', file?.epoch > 0 ? '0.12' : '0.02');
    this.#drawSoon();
  }

  #drawSoon() {
    this.#frame ??= requestAnimationFrame(() => {
      this.#frame = null;
      this.#draw();
    });
  }

  /** A lease shrinks between two states of the server: it is drawn again when its text changes, until it has ended. */
  #draw() {
    const lease = this.#file?.lease ?? { holder: null, remainingMs: 0 };
    const isStill = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const since = isStill ? 0 : performance.now() - this.#atMs;
    const remainingMs = Math.max(0, lease.remainingMs - since);
    const share = Math.min(1, remainingMs / this.#timing.leaseMs);
    const hasHolder = lease.holder !== null && remainingMs > 0;
    const texts = [
      this.#file?.epoch > 0 ? `epoch ${this.#file.epoch}` : '',
      hasHolder ? lease.holder : 'no lease',
      hasHolder ? formatSeconds(remainingMs) : '',
    ];
    clearTimeout(this.#shrinks);
    if (hasHolder && !isStill) this.#shrinks = setTimeout(() => this.#drawSoon(), SHRINK_MS);
    const drawn = `${share.toFixed(3)} ${texts} ${this.#file?.primary}`;
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#rim.setAttribute('stroke-dasharray', `${(share * RIM).toFixed(1)} ${RIM.toFixed(1)}`);
    setAttribute(this.#rim, 'class', this.#file?.primary === null ? 'rim orphan' : 'rim');
    [this.#epoch, this.#holder, this.#remaining].forEach((element, place) => {
      setText(element, texts[place]);
    });
  }

  #replica(server) {
    const sign = h('span', { class: 'sign', 'aria-hidden': 'true' });
    const what = h('span', { class: 'what' });
    const version = h('span', { class: 'version' });
    const lag = h('span', { class: 'lag' });
    const bar = h('span', { class: 'bar', 'aria-hidden': 'true' }, h('span'));
    const remove = button(
      'Remove',
      `Remove the replica on ${server}`,
      () => this.#actions.replica('remove', server),
      { 'data-needs': 'admin' },
    );
    const element = h(
      'li',
      { class: 'replica' },
      h('span', { class: 'who' }, sign, h('b', {}, server)),
      what,
      version,
      bar,
      lag,
      remove,
    );
    const update = (replica) => {
      const [mark, label] = STATES[replica.state] ?? ['?', replica.state];
      const isPrimary = replica.role === 'primary';
      setText(sign, isPrimary ? '◆' : mark);
      setText(
        what,
        isPrimary ? 'primary' : replica.role === 'learner' ? `learning, ${label}` : `backup, ${label}`,
      );
      setText(version, replica.version === null ? 'version not known' : `version ${replica.version}`);
      setText(lag, lagText(replica));
      setAttribute(element, 'data-role', replica.role);
      setAttribute(element, 'data-state', replica.state);
      const share = replica.newest === 0 ? 1 : (replica.version ?? 0) / replica.newest;
      bar.firstChild.style.setProperty('width', `${Math.round(100 * share)}%`);
      setAttribute(remove, 'hidden', replica.count < 2);
    };
    return { element, update };
  }
}

function lagText({ role, state, lagOperations }) {
  if (role === 'primary') return 'orders the writes';
  if (lagOperations === null)
    return state === 'unreachable' ? 'behind by an unknown number of writes' : 'no primary now';
  if (lagOperations === 0) return 'has every write';
  return `${lagOperations} ${lagOperations === 1 ? 'write' : 'writes'} behind`;
}

/** The state of the file as a sentence, with the same content as the picture. */
function sentenceOf(file) {
  if (file === null) return 'Choose a file below, or write its name above: VOLUME:/path.';
  if (file.file === null) return `There is no file ${file.path}, or the catalog is not available.`;
  const { primary, epoch, lease, path, replicas } = file;
  if (primary !== null) return `${primary} is the primary of ${path} in epoch ${epoch} and renews its lease.`;
  const holder = replicas.find(({ server }) => server === lease.holder);
  if (holder !== undefined && holder.state !== 'unreachable') {
    return `${lease.holder} holds the lease of ${path}, and becomes primary once a majority has promised its epoch.`;
  }
  if (lease.holder !== null) {
    return `${path} has no primary: writes and most reads wait until the lease of ${lease.holder} has ended; stale reads continue.`;
  }
  return `${path} has no primary, because it is not in use. The first use elects one.`;
}
