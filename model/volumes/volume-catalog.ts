/** Steps of volumes' catalogs: replicated commands, and reports to the root. */
import { agreed, executed, flushed, type Quorum, quorums, withContents } from './catalog-replicas.ts';
import { isRemoved, numbered, received } from './root-catalog.ts';
import {
  type Configuration,
  type Contents,
  has,
  isMajority,
  type Known,
  nameOf,
  namesOf,
  RANGE,
  type Report,
  type Root,
  STEP,
  type State,
  type Step,
  spend,
} from './state.ts';

export function* catalogSteps(state: State, configuration: Configuration): Generator<Step> {
  for (const volume of state.replicas.keys()) {
    for (const quorum of quorums(state, volume, configuration)) {
      const call: Call = { state, volume, quorum, configuration };
      yield* asListed(call);
      yield* limits(call);
      yield* placements(call);
      yield* moves(call);
      yield* flush(call);
    }
    yield* reports(state, volume, configuration);
    yield* number(state, volume, configuration);
  }
}

interface Call {
  readonly state: State;
  readonly volume: number;
  readonly quorum: Quorum;
  readonly configuration: Configuration;
}

function step(call: Call, kind: Step['kind'], text: string, change: Partial<Contents>): Step {
  const { state, volume, quorum } = call;
  const next = executed(state, volume, quorum, change);
  const who = `volume ${volume} at ${namesOf(quorum.servers)}`;
  const made: Step = { kind, text: `${who}: ${text}`, next };
  const serves = kind === 'client' || change.created === true;
  return serves && isRemoved(state, volume)
    ? { ...made, violation: `The catalog of volume ${volume} serves, which is removed` }
    : made;
}

/** Commands by which the catalog follows the root's list, as the primary knows it. */
function* asListed(call: Call): Generator<Step> {
  const { state, quorum, configuration, volume } = call;
  const { newest } = quorum;
  const lists = new Set<Root>();
  for (const [server, { list }] of state.servers.entries())
    if (list !== null && has(quorum.servers, server)) lists.add(list);
  for (const { rows, servers } of lists) {
    const row = rows[volume];
    if (row === undefined) continue;
    if (row.state === 'creating' && !newest.created && !newest.closed) {
      const known = configuration.without.has('created-with-servers')
        ? servers.map((): Known => ({ state: 'in', since: 0 }))
        : servers;
      yield step(call, 'protocol', 'create', { created: true, servers: known, ranges: row.ranges });
    }
    if (row.state === 'removing' && !newest.closed && newest.refused !== row.since) {
      const isEmpty = (newest.placed | newest.reserved) === 0;
      if (isEmpty) yield step(call, 'protocol', 'close', { closed: true });
      else yield step(call, 'protocol', 'refuse to close', { refused: row.since });
    }
    if (!newest.created || newest.closed) continue;
    if (areOther(servers, newest.servers, configuration))
      yield step(call, 'protocol', 'follow the states of servers', { servers });
    if (row.ranges.length > newest.ranges.length)
      yield step(call, 'protocol', 'take another range', { ranges: row.ranges });
  }
}

function areOther(listed: readonly Known[], own: readonly Known[], { without }: Configuration): boolean {
  const ascends = !without.has('servers-ascend');
  return listed.some(({ since }, server) => {
    const before = own[server]?.since ?? 0;
    return ascends ? since > before : since !== before;
  });
}

/** An epoch begins at the limit; the limit is raised before numbers up to it are given out. */
function* limits(call: Call): Generator<Step> {
  const { state, volume, quorum, configuration } = call;
  if (configuration.budgets.number === undefined) return;
  const { created, closed, next, limit, ranges } = quorum.newest;
  if (!created || closed) return;
  if (!has(state.active, volume)) {
    const begun = configuration.without.has('epoch-skips') ? next : limit;
    const made = step(call, 'protocol', 'begin an epoch', { next: begun });
    yield { ...made, next: { ...made.next, active: state.active | (1 << volume) } };
    return;
  }
  if (next < limit) return;
  const first = firstToGive(limit, ranges);
  if (first !== null)
    yield step(call, 'protocol', `may number from ${first}`, { next: first, limit: first + STEP });
}

/** @returns where numbering continues after `limit`; null if all ranges are used up */
function firstToGive(limit: number, ranges: readonly number[]): number | null {
  for (const first of ranges) {
    if (limit <= first) return first;
    if (limit < first + RANGE) return limit;
  }
  return null;
}

/** Gives out a number without waiting for a flush: the contents of the file may be on disks before the command. */
function* number(state: State, volume: number, configuration: Configuration): Generator<Step> {
  const spent = spend(state, 'number');
  if (spent === null || !has(state.active, volume)) return;
  const durable = agreed(state, volume, configuration.without.has('limit-flushed') ? 'now' : 'disk');
  for (const quorum of quorums(state, volume, configuration)) {
    const { created, closed, next, limit } = quorum.newest;
    if (!created || closed || next >= limit || durable === null || next >= durable.limit) continue;
    const made = step({ state: spent, volume, quorum, configuration }, 'client', `give number ${next}`, {
      next: next + 1,
    });
    const after = { ...made.next, given: [...made.next.given, next].sort((a, b) => a - b) };
    yield made.violation === undefined ? numbered(state, next, made.text, after) : made;
  }
}

function* placements(call: Call): Generator<Step> {
  const { state, quorum, configuration } = call;
  const { created, closed, servers, placed, reserved } = quorum.newest;
  if (!created || closed) return;
  // By symmetry, only the server that may be removed matters.
  const server = servers.length - 1;
  const bit = 1 << server;
  const mayPlace = servers[server]?.state === 'in' || configuration.without.has('placement-respects-drain');
  const place = spend(state, 'place');
  if (place !== null && mayPlace && !has(placed, server))
    yield step({ ...call, state: place }, 'client', `place a file at ${nameOf(server)}`, {
      placed: placed | bit,
    });
  const reserve = spend(state, 'reserve');
  if (reserve !== null && mayPlace && !has(reserved, server))
    yield step({ ...call, state: reserve }, 'client', `reserve a number with ${nameOf(server)}`, {
      reserved: reserved | bit,
    });
  if (has(reserved, server)) {
    const fewer = reserved & ~bit;
    yield step(call, 'client', 'create the reserved file', { reserved: fewer, placed: placed | bit });
    yield step(call, 'client', 'forget the reservation', { reserved: fewer });
  }
  if (has(placed, server))
    yield step(call, 'client', `move the file away from ${nameOf(server)}`, { placed: placed & ~bit });
}

/** The catalog moves from one member to another server: the change is one command of both majorities. */
function* moves(call: Call): Generator<Step> {
  const { state, volume, quorum, configuration } = call;
  const { newest } = quorum;
  const { created, closed, members, view, servers } = newest;
  const spent = spend(state, 'move');
  if (spent === null || !created || closed) return;
  for (let from = 0; from < servers.length; from++) {
    for (let to = 0; to < servers.length; to++) {
      if (!has(members, from) || has(members, to)) continue;
      if (servers[to]?.state !== 'in' && !configuration.without.has('move-respects-drain')) continue;
      if (state.servers[to]?.list?.rows[volume]?.state === 'removed') continue;
      const next = (members & ~(1 << from)) | (1 << to);
      const change = { view: view + 1, members: next };
      const made = step(
        { ...call, state: spent },
        'user',
        `move from ${nameOf(from)} to ${nameOf(to)}`,
        change,
      );
      const contents = made.next.replicas[volume]?.find((_, server) => has(quorum.servers, server))?.now;
      const both = quorum.servers | (1 << to);
      if (contents === undefined || !isMajority(both, next)) continue;
      // The new member has all of it, and both majorities have synced the view, before it counts.
      const moved = withContents(made.next, volume, both, contents);
      const synced = flushed(moved, volume, { servers: both, newest: contents });
      yield { ...made, next: configuration.without.has('views-synced') ? moved : synced };
    }
  }
}

function* flush({ state, volume, quorum }: Call): Generator<Step> {
  const isOnDisks = (state.replicas[volume] ?? []).every(
    (replica, server) => !has(quorum.servers, server) || replica?.disk === quorum.newest,
  );
  if (isOnDisks) return;
  const next = flushed(state, volume, quorum);
  yield { kind: 'protocol', text: `volume ${volume} at ${namesOf(quorum.servers)}: flush`, next };
}

function* reports(state: State, volume: number, configuration: Configuration): Generator<Step> {
  for (const report of reportsOf(state, volume, configuration)) {
    const next = received(state, report, configuration);
    if (next === null) continue;
    yield { kind: 'protocol', text: `root: ${reportText(report)}`, next };
    const late = spend(state, 'delay');
    if (late !== null)
      yield {
        kind: 'fault',
        text: `delayed: ${reportText(report)}`,
        next: { ...late, late: { kind: 'report', report } },
      };
  }
}

/** What the catalog can report: only what survives a loss of power. */
function reportsOf(state: State, volume: number, { without }: Configuration): Report[] {
  const contents = agreed(state, volume, without.has('reports-flushed') ? 'now' : 'disk');
  if (contents === null) return [];
  const { created, closed, refused, view, members, servers, ranges, limit } = contents;
  const found: Report[] = [];
  if (created) found.push({ kind: 'created', volume });
  if (closed) found.push({ kind: 'closed', volume });
  if (refused > 0) found.push({ kind: 'refused', volume, since: refused });
  if (view > 1) found.push({ kind: 'view', volume, view, members });
  const server = servers.length - 1;
  const known = servers[server];
  const held =
    contents.placed |
    (without.has('reserved-counts') ? 0 : contents.reserved) |
    (without.has('members-count') ? 0 : members);
  if (known?.state === 'draining' && (closed || !has(held, server)))
    found.push({ kind: 'none-left', volume, server, since: known.since });
  const isUsedUp = limit > 0 && firstToGive(limit, ranges) === null;
  if (created && !closed && isUsedUp) found.push({ kind: 'range-wanted', volume, count: ranges.length });
  return found;
}

export function reportText(report: Report): string {
  const { kind, volume } = report;
  const detail = 'since' in report ? ` (${report.since})` : 'view' in report ? ` ${report.view}` : '';
  return `report "${kind}${detail}" of volume ${volume}`;
}
