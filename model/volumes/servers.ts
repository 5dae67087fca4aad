/** Steps of servers: they learn the root's list, open and drop replicas of volumes' catalogs; and faults. */
import { quorums, withContents } from './catalog-replicas.ts';
import { received } from './root-catalog.ts';
import {
  type Configuration,
  type Contents,
  has,
  nameOf,
  namesOf,
  REMOVED_VIEW,
  type Replica,
  type Root,
  type Row,
  replaced,
  type Server,
  type State,
  type Step,
  spend,
} from './state.ts';
import { reportText } from './volume-catalog.ts';

export function* serverSteps(state: State, configuration: Configuration): Generator<Step> {
  for (const server of state.servers.keys()) {
    yield* learning(state, server, configuration);
    yield* opening(state, server, configuration);
    yield* dropping(state, server, configuration);
    yield* catchingUp(state, server, configuration);
    yield* diskLoss(state, server, configuration);
  }
  yield* lateMessage(state, configuration);
  yield* powerLoss(state);
}

function withServer(state: State, server: number, change: Partial<Server>): State {
  const next = { ...(state.servers[server] as Server), ...change };
  return { ...state, servers: replaced(state.servers, server, next) };
}

function withReplica(state: State, volume: number, server: number, replica: Replica | null): State {
  const row = replaced(state.replicas[volume] ?? [], server, replica);
  return { ...state, replicas: replaced(state.replicas, volume, row) };
}

/** The root announces what survives a loss of power. */
function announced({ root, rootDisk }: State, { without }: Configuration): Root {
  return without.has('lists-flushed') ? root : rootDisk;
}

/** Of a list, what servers and volumes' catalogs use: lists that agree in it are equal. */
function listOf({ version, servers, rows }: Root): Root {
  return { version, servers, rows, confirmed: [], next: 0, rangeCount: 0 };
}

function* learning(state: State, server: number, configuration: Configuration): Generator<Step> {
  const { list } = state.servers[server] as Server;
  const now = listOf(announced(state, configuration));
  if (list === null) {
    // A new disk is registered durably, and begins with the list of its registration.
    const root: Root = { ...state.root, version: state.root.version + 1 };
    const registered = withServer(state, server, { list: listOf(root), born: root.version });
    const next = { ...registered, root, rootDisk: root };
    yield { kind: 'protocol', text: `root: register the new disk of ${nameOf(server)}`, next };
    return;
  }
  if (!concerns(state, server, now, list)) return;
  if (isNewer(now, list, configuration))
    yield {
      kind: 'protocol',
      text: `${nameOf(server)}: learn list ${now.version}`,
      next: withServer(state, server, { list: now }),
    };
  const late = spend(state, 'delay');
  if (late !== null && state.late === null)
    yield {
      kind: 'fault',
      text: `delayed: list ${now.version} to ${nameOf(server)}`,
      next: { ...late, late: { kind: 'list', to: server, list: now } },
    };
}

/** Whether the server does anything by either list: else learning it only multiplies states. */
function concerns({ replicas }: State, server: number, ...lists: readonly Root[]): boolean {
  const isMember = lists.some(({ rows }) => rows.some(({ members }) => has(members, server)));
  return isMember || replicas.some((row) => row[server] !== null);
}

function isNewer(list: Root, than: Root, { without }: Configuration): boolean {
  return without.has('lists-ascend') ? list.version !== than.version : list.version > than.version;
}

/** A list without removed volumes would leave them unknown. */
function listedRow({ rows }: Root, volume: number, { without }: Configuration): Row | undefined {
  const row = rows[volume];
  return without.has('removed-is-listed') && row?.state === 'removed' ? undefined : row;
}

function* opening(state: State, server: number, configuration: Configuration): Generator<Step> {
  const { list, born } = state.servers[server] as Server;
  if (list === null) return;
  const { without } = configuration;
  for (const volume of state.replicas.keys()) {
    const row = listedRow(list, volume, configuration);
    if (row === undefined || row.state === 'removed' || !has(row.members, server)) continue;
    const opensRemoving = !without.has('removing-is-opened') && !without.has('closed-before-removed');
    if (row.state === 'removing' && !opensRemoving) continue;
    if (state.replicas[volume]?.[server] !== null) continue;
    const mayHaveHad = row.made <= born && !without.has('new-disk-is-lost');
    const contents = emptyContents(row);
    const replica: Replica = { trust: mayHaveHad ? 'lost' : 'intact', now: contents, disk: contents };
    const next = withReplica(state, volume, server, replica);
    const made: Step = { kind: 'protocol', text: `${nameOf(server)}: open volume ${volume}`, next };
    const wasDropped = (state.dropped[volume]?.[server] ?? 0) >= row.view;
    yield wasDropped ? { ...made, violation: `A dropped catalog of volume ${volume} exists again` } : made;
  }
}

function emptyContents({ view, members, ranges }: Row): Contents {
  const none = { created: false, closed: false, refused: 0, servers: [], placed: 0, reserved: 0 };
  return { epoch: 0, seq: 0, view, members, ...none, ranges, next: 0, limit: 0 };
}

/** Once the volume is removed, or a view excludes this server. */
function* dropping(state: State, server: number, configuration: Configuration): Generator<Step> {
  const { list } = state.servers[server] as Server;
  if (list === null) return;
  for (const volume of state.replicas.keys()) {
    const replica = state.replicas[volume]?.[server] ?? null;
    const row = listedRow(list, volume, configuration);
    if (replica === null || row === undefined) continue;
    const isGone =
      row.state === 'removed' ||
      (row.state === 'removing' && configuration.without.has('closed-before-removed'));
    const isExcluded = row.view >= replica.now.view && !has(row.members, server);
    if (!isGone && !isExcluded) continue;
    const view = isGone ? REMOVED_VIEW : row.view;
    const dropped = replaced(state.dropped[volume] ?? [], server, view);
    const next = {
      ...withReplica(state, volume, server, null),
      dropped: replaced(state.dropped, volume, dropped),
    };
    yield { kind: 'protocol', text: `${nameOf(server)}: drop volume ${volume}`, next };
  }
}

function* catchingUp(state: State, server: number, configuration: Configuration): Generator<Step> {
  for (const volume of state.replicas.keys()) {
    if (state.replicas[volume]?.[server]?.trust !== 'lost') continue;
    for (const { servers, newest } of quorums(state, volume, configuration)) {
      if (!has(newest.members, server)) continue;
      const next = withContents(state, volume, 1 << server, newest);
      const text = `${nameOf(server)}: catch up volume ${volume} from ${namesOf(servers)}`;
      yield { kind: 'protocol', text, next };
    }
  }
}

function* diskLoss(state: State, server: number, { serverCount }: Configuration): Generator<Step> {
  const spent = spend(state, 'wipe');
  if (spent === null || server >= serverCount - 1) return;
  const replicas = spent.replicas.map((row) => replaced(row, server, null));
  const next = withServer({ ...spent, replicas }, server, { list: null, born: 0 });
  yield { kind: 'fault', text: `${nameOf(server)}: lose the disk`, next };
}

function* lateMessage(state: State, configuration: Configuration): Generator<Step> {
  const { late } = state;
  if (late === null) return;
  if (late.kind === 'report') {
    const next = received({ ...state, late: null }, late.report, configuration);
    if (next !== null) yield { kind: 'fault', text: `root, late: ${reportText(late.report)}`, next };
    return;
  }
  const { list } = state.servers[late.to] as Server;
  // A new disk takes the list of its registration first.
  if (list === null || !isNewer(late.list, list, configuration)) return;
  const next = withServer({ ...state, late: null }, late.to, { list: late.list });
  yield { kind: 'fault', text: `${nameOf(late.to)}, late: learn list ${late.list.version}`, next };
}

/** All servers lose power: each has what was on its disk, or what it had already written. */
function* powerLoss(state: State): Generator<Step> {
  const spent = spend(state, 'power-loss');
  if (spent === null) return;
  const unflushed: { readonly volume: number; readonly server: number; readonly replica: Replica }[] = [];
  for (const [volume, row] of state.replicas.entries())
    for (const [server, replica] of row.entries())
      if (replica !== null && replica.now !== replica.disk) unflushed.push({ volume, server, replica });
  const roots = state.root === state.rootDisk ? [state.root] : [state.root, state.rootDisk];
  for (const root of roots) {
    for (let kept = 0; kept < 1 << unflushed.length; kept++) {
      let next: State = { ...spent, root, rootDisk: root, rootEpoch: spent.rootEpoch + 1, active: 0 };
      for (const [index, { volume, server, replica }] of unflushed.entries()) {
        const { trust, now, disk } = replica;
        const left = (kept & (1 << index)) !== 0 ? now : disk;
        // It was new here, and is not here any more.
        const remaining = left.view === 0 ? null : { trust, now: left, disk: left };
        next = withReplica(next, volume, server, remaining);
      }
      yield { kind: 'fault', text: 'all servers lose power', next };
    }
  }
}
