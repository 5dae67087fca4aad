/** The dashboard: one event stream in, several views out. */

import { Traffic } from './chart.js';
import { Cluster, ProblemError } from './cluster.js';
import { byId, setAttribute, setText } from './dom.js';
import { EventsView } from './events.js';
import { FileView } from './file.js';
import { FilesView } from './files.js';
import { formatBytes, formatRate, formatUptime } from './format.js';
import { ServersView } from './servers.js';
import { SnapshotsView } from './snapshots.js';
import { StoryView } from './story.js';
import { listen } from './stream.js';
import { TrashView } from './trash.js';

const BASES_KEY = 'leasehold-servers';
const NOTICE_MS = 8_000;

const cluster = new Cluster();
const traffic = new Traffic();
const events = new EventsView();
let watched = decodeURIComponent(location.hash.slice(1));
let kept = null;
let control = null;
let controlStream = null;
let file = null;
let noticeTimer = 0;
/**
 * `granted`, `refused`, or `dismissed`: the user closed the token dialog after a refusal.
 */
let access = 'granted';

const servers = new ServersView({ run: (what, id) => guarded(() => act(what, id)) });
const fileView = new FileView({ replica: (what, id) => guarded(() => moveReplica(what, id)) });
const parts = { cluster, say, onProblem: complain };
const trash = new TrashView({ ...parts, onRestored: () => files.refresh() });
const snapshots = new SnapshotsView({
  ...parts,
  onBrowse: browse,
  onRemoved: (name) => files.snapshotRemoved(name),
});
const files = new FilesView({ ...parts, onWatch: watch, onVolume: openVolume });
const story = new StoryView(() => guarded(() => order('/next')));

const stream = listen({
  bases,
  path: () =>
    `/v1/events?${new URLSearchParams({ ...(watched && { watch: watched }), ...(kept && { kept }) })}`,
  headers: () => cluster.headers(),
  onServer,
  onEvent: ({ event, data }, base) => {
    if (event === 'you') setViewer(data);
    else if (event === 'resync') resync(data);
    else if (event === 'happened') events.add(data);
    else if (event === 'state') show(data, base);
  },
});

/** All known servers, this page's own first. */
function bases() {
  const known = JSON.parse(sessionStorage.getItem(BASES_KEY) ?? '[]');
  return [...new Set([location.origin, ...known])];
}

function onServer(base, problem) {
  const status = byId('teller');
  if (base === null) {
    if (problem instanceof ProblemError && problem.isRefusal) return refused(problem);
    setText(status, 'looking for a server that answers …');
    if (problem instanceof ProblemError) complain(problem);
    return;
  }
  const isFirst = status.textContent === '';
  cluster.base = base;
  // Access is granted; an earlier refusal may have opened the dialog while it was being closed.
  if (access === 'refused') byId('token-dialog').close();
  access = 'granted';
  setText(status, `connected to ${new URL(base).host}`);
  setAttribute(status, 'data-hopped', base !== location.origin);
  if (isFirst || byId('listing').childElementCount === 0) void files.start();
}

/** The server refuses the event stream: the page has no data, or old data. Opens the token dialog, unless dismissed. */
function refused(problem) {
  const verdict = byId('verdict');
  setText(verdict, 'Access denied: a token with at least the role read is required.');
  setAttribute(verdict, 'data-mood', 'bad');
  setText(byId('teller'), '');
  setText(byId('viewer'), '');
  document.body.dataset.role = 'none';
  if (access === 'dismissed') return;
  access = 'refused';
  openTokens(whyRefused(problem));
}

function whyRefused({ status, message }) {
  return status === 401 && cluster.token === '' ? 'This cluster requires a token.' : `${message}.`;
}

/** Actions that the user may not perform are hidden: `data-needs` in style.css. */
function setViewer({ name, role }) {
  document.body.dataset.role = role;
  setText(byId('viewer'), name === null ? '' : `as ${name}, role ${role}`);
}

function resync(data) {
  setText(byId('cluster-name'), data.cluster);
  setText(byId('version'), `Leasehold ${data.version}.`);
  document.title = `Leasehold · ${data.cluster}`;
  fileView.timing(data.timing);
  events.reset(data.happenings);
  if (data.control !== undefined && control === null) {
    control = data.control;
    controlStream = listenToControl();
  }
}

function show(state, base) {
  sessionStorage.setItem(BASES_KEY, JSON.stringify(state.servers.map(({ url }) => url)));
  file = state.file;
  servers.update(state.servers, base);
  fileView.update(state.file, state.servers);
  if (state.kept?.volume === kept && kept !== null) {
    trash.revisionReported(state.kept.trash);
    snapshots.revisionReported(state.kept.snapshots);
  }
  traffic.add(state, base, events.reason(state.atMs - 6_000));
  const [mood, text] = verdictOf(state.servers);
  const verdict = byId('verdict');
  setText(verdict, text);
  setAttribute(verdict, 'data-mood', mood);
  setText(byId('moving'), movingText(state.moving));
}

/** @param {import('../wire/http-api.ts').Moving | undefined} moving */
function movingText(moving) {
  if (moving === undefined) return '';
  const { done, total, filesPerS, bytesPerS, etaS } = moving;
  const rate = filesPerS > 0 ? `, ${formatRate(filesPerS)} a second (${formatBytes(bytesPerS)})` : '';
  const left = etaS === null ? '' : `; about ${formatUptime(etaS * 1000)} left`;
  return `${done} of ${total} files have moved to other servers${rate}${left}.`;
}

function verdictOf(all) {
  const serving = all.filter(({ state }) => state === 'serving');
  const missing = all.filter(({ state }) => state !== 'serving').map(({ id }) => id);
  if (missing.length === 0) return ['good', `All ${all.length} servers serve.`];
  const names = missing.join(', ');
  if (serving.length * 2 > all.length)
    return [
      'neutral',
      `${serving.length} of ${all.length} servers serve, which is a majority; ${names} ${missing.length === 1 ? 'does' : 'do'} not.`,
    ];
  return [
    'bad',
    `${serving.length} of ${all.length} servers serve, which is no majority: operations that need one wait for ${names}.`,
  ];
}

function watch(path) {
  watched = path.trim();
  history.replaceState(null, '', watched === '' ? '#' : `#${encodeURIComponent(watched)}`);
  byId('watch-path').value = watched;
  stream.restart();
}

/** Trash and snapshots of a volume. */
function openVolume(volume) {
  if (kept !== volume) {
    kept = volume;
    stream.restart();
  }
  void trash.open(volume);
  void snapshots.open(volume);
}

function browse(snapshot) {
  byId('files').scrollIntoView();
  void files.browse(snapshot);
}

/** Actions on a server: by the cluster, or by the process that started the server. */
async function act(what, id) {
  switch (what) {
    case 'drain':
    case 'in':
      await cluster.command({ kind: 'server-state', id, state: what === 'in' ? 'in' : 'draining' });
      return say(what === 'in' ? `${id} takes replicas again.` : `${id} is being drained.`);
    case 'scrub':
      await cluster.json(`/v1/scrub?server=${encodeURIComponent(id)}`, { method: 'POST' });
      return say(`${id} reads its whole disk and compares checksums.`);
    default:
      await order(`/servers/${encodeURIComponent(id)}/${what}`);
  }
}

async function moveReplica(what, id) {
  const now = file.replicas.filter(({ role }) => role !== 'learner').map(({ server }) => server);
  const members = what === 'add' ? [...now, id] : now.filter((server) => server !== id);
  say(
    what === 'add'
      ? `Adding a replica of ${file.path} on ${id} …`
      : `Removing the replica of ${file.path} on ${id} …`,
  );
  const { volume } = await cluster.query({ kind: 'volume', name: file.path.split(':')[0] });
  const count = members.length === volume.replicas ? null : members.length;
  // First, else the cluster restores the volume's number of replicas.
  await cluster.command({ kind: 'set-replicas', inode: file.file, count }, volume.catalog);
  await cluster.change(`/v1/data/${file.file}/members`, { members });
  say(`${file.path} is on ${members.join(', ')} now.`);
}

async function order(path) {
  const response = await fetch(`${control.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${control.key}` },
  });
  if (!response.ok) throw new Error(await response.text());
}

/** Events of the process that started the servers: their states, and the demo. */
function listenToControl() {
  return listen({
    bases: () => [control.url],
    path: () => '/events',
    headers: () => ({ authorization: `Bearer ${control.key}` }),
    onServer: () => {},
    onEvent: ({ data }) => {
      servers.processes(data.servers);
      story.update(data.story);
    },
  });
}

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    complain(error);
  }
}

function complain(error) {
  if (error instanceof ProblemError && error.isRefusal) openTokens(whyRefused(error));
  // The stream finds another server; until then there is nothing to report.
  else if (error.name !== 'AbortError')
    say(error instanceof TypeError ? 'The server does not answer.' : error.message, 'bad');
}

function say(text, mood = 'good') {
  const notice = byId('notice');
  setText(notice, text);
  setAttribute(notice, 'data-mood', mood);
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => setText(notice, ''), NOTICE_MS);
}

function openTokens(why = '') {
  const dialog = byId('token-dialog');
  // A notice would be hidden behind the dialog.
  setText(byId('token-why'), why);
  if (!dialog.open) dialog.showModal();
}

byId('open-token').addEventListener('click', () => openTokens());
byId('token-dialog').addEventListener('close', () => {
  const dialog = byId('token-dialog');
  const input = byId('token-input');
  if (dialog.returnValue === 'use') cluster.token = input.value.trim();
  if (dialog.returnValue === 'forget') cluster.token = '';
  input.value = '';
  const isCancelled = dialog.returnValue === 'cancel' || dialog.returnValue === '';
  dialog.returnValue = '';
  if (isCancelled) {
    if (access === 'refused') access = 'dismissed';
    return;
  }
  if (access === 'dismissed') access = 'refused';
  stream.restart();
  void files.start();
});
byId('watch-form').addEventListener('submit', (event) => {
  event.preventDefault();
  watch(byId('watch-path').value);
});
addEventListener('pagehide', () => {
  stream.close();
  controlStream?.close();
});
byId('watch-path').value = watched;
