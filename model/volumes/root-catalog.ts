/** Steps of the root catalog: commands of people, and what it does with reports of volumes' catalogs. */
import {
  type Configuration,
  has,
  type Known,
  losesPower,
  nameOf,
  namesOf,
  RANGE,
  RANGES_FROM,
  type Report,
  ROOT_EPOCH,
  type Root,
  type Row,
  replaced,
  type ServerState,
  type State,
  type Step,
  spend,
} from './state.ts';

export function* rootSteps(state: State, configuration: Configuration): Generator<Step> {
  yield* creation(state, configuration);
  yield* removal(state);
  yield* drains(state);
  yield* expulsions(state, configuration);
  yield* ownNumber(state);
  if (state.root !== state.rootDisk)
    yield { kind: 'protocol', text: 'root: flush', next: { ...state, rootDisk: state.root } };
}

/** @returns the state after a command of the root, which is durable at once if no power can be lost */
function withRoot(state: State, change: Partial<Root>): State {
  const root = { ...state.root, version: state.root.version + 1, ...change };
  return { ...state, root, rootDisk: losesPower(state) ? state.rootDisk : root };
}

function withRow(state: State, volume: number, change: Partial<Row>): State {
  const row = { ...(state.root.rows[volume] as Row), ...change };
  return withRoot(state, { rows: replaced(state.root.rows, volume, row) });
}

/** Gives out a range. @returns the root's counters after it */
function allot(
  { root, rootEpoch }: State,
  { without }: Configuration,
): { readonly first: number; readonly counters: Partial<Root> } {
  if (!without.has('ranges-apart')) {
    return {
      first: RANGES_FROM + root.rangeCount * RANGE,
      counters: { rangeCount: root.rangeCount + 1 },
    };
  }
  const next = Math.max(root.next, (rootEpoch - 1) * ROOT_EPOCH);
  const first = Math.ceil(next / RANGE) * RANGE;
  return { first, counters: { next: first + RANGE } };
}

function* creation(state: State, configuration: Configuration): Generator<Step> {
  const { oneName, without } = configuration;
  const spent = spend(state, 'create');
  if (spent === null) return;
  const { rows, servers, version } = state.root;
  const name = oneName ? 0 : rows.length;
  const isTaken = rows.some(
    (row) =>
      row.name === name &&
      row.state !== 'removed' &&
      !(without.has('name-until-removed') && row.state === 'removing'),
  );
  if (isTaken) return;
  for (const members of configuration.members) {
    if (servers.some(({ state: other }, server) => has(members, server) && other !== 'in')) continue;
    const { first, counters } = allot(state, configuration);
    const made = version + 1;
    const row: Row = { name, state: 'creating', made, since: made, view: 1, members, ranges: [first] };
    const next = withRoot(withPlaceFor(spent, rows.length), { ...counters, rows: [...rows, row] });
    yield { kind: 'user', text: `root: create volume ${rows.length} at ${namesOf(members)}`, next };
  }
}

/** After a loss of power, a number of a volume may be used that was used before, if no server had learned of it. */
function withPlaceFor(state: State, volume: number): State {
  if (volume < state.replicas.length) return state;
  const none = state.servers.map(() => null);
  const never = state.servers.map(() => 0);
  return { ...state, replicas: [...state.replicas, none], dropped: [...state.dropped, never] };
}

function* removal(state: State): Generator<Step> {
  const spent = spend(state, 'remove');
  if (spent === null) return;
  for (const [volume, row] of state.root.rows.entries()) {
    if (row.state !== 'creating' && row.state !== 'ready') continue;
    const next = withRow(spent, volume, { state: 'removing', since: state.root.version + 1 });
    yield { kind: 'user', text: `root: remove volume ${volume}`, next };
  }
}

function withServer(state: State, server: number, to: ServerState): State {
  const known: Known = { state: to, since: state.root.version + 1 };
  return withRoot(state, { servers: replaced(state.root.servers, server, known) });
}

function* drains(state: State): Generator<Step> {
  // By symmetry, one server is enough: the last.
  const server = state.root.servers.length - 1;
  const { state: now } = state.root.servers[server] as Known;
  const drained = now === 'in' ? spend(state, 'drain') : null;
  if (drained !== null) {
    yield {
      kind: 'user',
      text: `root: drain ${nameOf(server)}`,
      next: withServer(drained, server, 'draining'),
    };
  }
  const back = now === 'draining' ? spend(state, 'undrain') : null;
  if (back !== null)
    yield {
      kind: 'user',
      text: `root: let ${nameOf(server)} in again`,
      next: withServer(back, server, 'in'),
    };
}

function* expulsions(state: State, { without }: Configuration): Generator<Step> {
  const server = state.root.servers.length - 1;
  const { state: now, since } = state.root.servers[server] as Known;
  const spent = spend(state, 'expel');
  const areConfirmed = state.root.rows.every(
    (row, volume) =>
      row.state === 'removed' ||
      (without.has('every-volume-confirms') && row.state === 'creating') ||
      state.root.confirmed.some(
        (one) =>
          one.volume === volume &&
          one.server === server &&
          (one.since === since || without.has('confirmation-names-drain')),
      ),
  );
  if (spent !== null && now === 'draining' && areConfirmed)
    yield { kind: 'user', text: `root: remove ${nameOf(server)}`, next: withServer(spent, server, 'out') };
  const dead = spend(state, 'dead');
  if (dead === null || now === 'out') return;
  const next = withServer({ ...dead, dead: dead.dead | (1 << server) }, server, 'out');
  yield { kind: 'user', text: `root: remove ${nameOf(server)}, which is dead`, next };
}

/** A file of a volume that the root itself serves; its contents are on disks before the number is durable. */
function* ownNumber(state: State): Generator<Step> {
  const spent = spend(state, 'root-number');
  if (spent === null) return;
  const { root, rootEpoch } = state;
  const number = Math.max(root.next, (rootEpoch - 1) * ROOT_EPOCH);
  const next = withRoot(
    { ...spent, given: [...spent.given, number] },
    { version: root.version, next: number + 1 },
  );
  yield numbered(state, number, `root: give number ${number}`, next);
}

/** A step that gives out `number`. */
export function numbered(before: State, number: number, text: string, next: State): Step {
  const step: Step = { kind: 'client', text, next };
  return before.given.includes(number)
    ? { ...step, violation: `Number ${number} was given out twice` }
    : step;
}

/** @returns the state after the root has received the report; null if it changes nothing */
export function received(state: State, report: Report, configuration: Configuration): State | null {
  const { without } = configuration;
  const { root } = state;
  const row = root.rows[report.volume];
  // A loss of power may have undone the row.
  if (row === undefined) return null;
  const since = root.version + 1;
  switch (report.kind) {
    case 'created':
      return row.state === 'creating' ? withRow(state, report.volume, { state: 'ready', since }) : null;
    case 'closed':
      return row.state === 'removing' ? withRow(state, report.volume, { state: 'removed', since }) : null;
    case 'refused': {
      const isThis = report.since === row.since || without.has('refusal-names-removal');
      return row.state === 'removing' && isThis
        ? withRow(state, report.volume, { state: 'ready', since })
        : null;
    }
    case 'none-left': {
      const { volume, server } = report;
      const known = root.servers[server] as Known;
      const isThis = known.since === report.since || without.has('confirmation-names-drain');
      const before = root.confirmed.find((one) => one.volume === volume && one.server === server);
      if (known.state === 'out' || !isThis || before?.since === report.since) return null;
      const others = root.confirmed.filter((one) => one !== before);
      const confirmed = [...others, { volume, server, since: report.since }];
      return withRoot(state, { version: root.version, confirmed });
    }
    case 'view': {
      const { view, members } = report;
      const isNewer = view > row.view || (without.has('views-ascend') && view !== row.view);
      return isNewer ? withRow(state, report.volume, { view, members }) : null;
    }
    case 'range-wanted': {
      if (row.ranges.length !== report.count || row.state === 'removed') return null;
      const { first, counters } = allot(state, configuration);
      const next = { ...row, ranges: [...row.ranges, first] };
      return withRoot(state, { ...counters, rows: replaced(root.rows, report.volume, next) });
    }
  }
}

/** Whether a removed volume is known as removed by the root now. */
export function isRemoved({ root }: State, volume: number): boolean {
  return root.rows[volume]?.state === 'removed';
}
