/**
 * A volume of the root catalog moves to a catalog of its own, while clients change it. Commands are bits; the volume's
 * rows are two pages, and a command changes one of them.
 */
import type { Search, StepTo } from './explorer.ts';

/** Commands, as bits. */
type Commands = number;

/** The root catalog, as far as it concerns the volume. */
interface MovingRoot {
  /** `here`: the volume is the root's, and does not move. */
  readonly phase: 'here' | 'begun' | 'frozen' | 'moved';
  /** The catalog to which the volume moves, or has moved last; 0: none yet. */
  readonly catalog: number;
  /** Executed commands: what they changed, and their outcomes. */
  readonly done: Commands;
  /** Creates whose numbers are reserved, and unused. */
  readonly reserved: Commands;
}

/** The catalog to which the volume moves. */
interface OwnCatalog {
  readonly catalog: number;
  /** Pages of rows that it has imported. */
  readonly pages: number;
  readonly begun: boolean;
  readonly done: Commands;
  /** Commands whose outcomes it has. */
  readonly outcomes: Commands;
  readonly reserved: Commands;
}

interface Late {
  readonly kind: 'report' | 'page';
  readonly catalog: number;
  readonly page: number;
  readonly rows: Commands;
}

type MoveBudget =
  | 'move'
  | 'abort'
  | 'change'
  | 'keyed'
  | 'numbered'
  | 'void'
  | 'retry'
  | 'cache'
  | 'check'
  | 'delay'
  | 'power-loss';

interface MoveState {
  readonly root: MovingRoot;
  readonly rootDisk: MovingRoot;
  readonly own: OwnCatalog;
  readonly ownDisk: OwnCatalog;
  /** The catalog that has the volume, by the server's list; 0: the root. */
  readonly list: number;
  /** The catalog that the client names: the root, or the volume's. */
  readonly named: 'root' | 'own';
  /** Commands that were sent, and may have been executed; those that were answered; of these, those on disks. */
  readonly sent: Commands;
  readonly answered: Commands;
  readonly kept: Commands;
  /** Commands that the client sends to the own catalog: the root has refused them, or it never got them. */
  readonly leaving: Commands;
  /** Commands with a key, which any server sends to the catalog of its list. */
  readonly keyed: Commands;
  /** Creates by reserved numbers, which a client has acknowledged before it sends them; those with void numbers. */
  readonly numbered: Commands;
  readonly voided: Commands;
  readonly nextCommand: number;
  /** What a client has cached: the commands that it has seen; null if nothing. */
  readonly cached: Commands | null;
  readonly late: Late | null;
  readonly left: Readonly<Partial<Record<MoveBudget, number>>>;
}

/** Rules that a planted mistake turns off. */
export type MoveRule =
  | 'frozen-waits'
  | 'freeze-flushed'
  | 'copy-flushed'
  | 'moved-flushed'
  | 'caches-end'
  | 'ready-serves'
  | 'abort-before-moved'
  | 'report-names-catalog'
  | 'pages-in-order'
  | 'outcomes-first'
  | 'retries-stay'
  | 'keys-move'
  | 'reserved-move'
  | 'voids-wait'
  | 'moved-is-elsewhere';

export interface MoveConfiguration {
  readonly budgets: Readonly<Partial<Record<MoveBudget, number>>>;
  readonly without: ReadonlySet<MoveRule>;
}

type Step = StepTo<MoveState>;

const PAGES = 2;
/** By page: the commands that change it. */
const OF_PAGE: readonly Commands[] = [0b0101, 0b1010];
const NEW: OwnCatalog = { catalog: 0, pages: 0, begun: false, done: 0, outcomes: 0, reserved: 0 };

export function moveSearch(configuration: MoveConfiguration): Search<MoveState> {
  return {
    initial: initialState(configuration),
    steps: (state) => stepsOf(state, configuration),
    violationOf,
    isResolved,
    nameOf: (state) => JSON.stringify(state),
  };
}

function initialState({ budgets }: MoveConfiguration): MoveState {
  const root: MovingRoot = { phase: 'here', catalog: 0, done: 0, reserved: 0 };
  return {
    ...{ root, rootDisk: root, own: NEW, ownDisk: NEW, list: 0, named: 'root' },
    ...{
      sent: 0,
      answered: 0,
      kept: 0,
      leaving: 0,
      keyed: 0,
      numbered: 0,
      voided: 0,
      nextCommand: 0,
      cached: null,
      late: null,
      left: budgets,
    },
  };
}

function* stepsOf(state: MoveState, configuration: MoveConfiguration): Generator<Step> {
  yield* rootSteps(state, configuration);
  yield* copySteps(state, configuration);
  yield* serverSteps(state, configuration);
  yield* clientSteps(state, configuration);
  yield* lateSteps(state, configuration);
  yield* faults(state);
}

function spend(state: MoveState, budget: MoveBudget): MoveState | null {
  const left = state.left[budget] ?? 0;
  return left === 0 ? null : { ...state, left: { ...state.left, [budget]: left - 1 } };
}

/** @returns the state with another root, which is durable at once if no power can be lost */
function withRoot(state: MoveState, change: Partial<MovingRoot>): MoveState {
  const root = { ...state.root, ...change };
  return losesPower(state) ? { ...state, root } : keeping({ ...state, root, rootDisk: root });
}

function withOwn(state: MoveState, change: Partial<OwnCatalog>): MoveState {
  const own = { ...state.own, ...change };
  return losesPower(state) ? { ...state, own } : keeping({ ...state, own, ownDisk: own });
}

function losesPower({ left }: MoveState): boolean {
  return (left['power-loss'] ?? 0) > 0;
}

/** A command that is answered, and on disks where it was executed, is never lost. */
function keeping(state: MoveState): MoveState {
  return { ...state, kept: state.kept | (state.answered & (state.rootDisk.done | state.ownDisk.done)) };
}

function* rootSteps(state: MoveState, { without }: MoveConfiguration): Generator<Step> {
  const { root, rootDisk, cached } = state;
  const move = root.phase === 'here' ? spend(state, 'move') : null;
  if (move !== null) {
    const catalog = root.catalog + 1;
    yield { kind: 'user', text: 'root: move the volume', next: withRoot(move, { phase: 'begun', catalog }) };
  }
  if (root.phase === 'begun' && cached !== null)
    yield { kind: 'protocol', text: 'root: recall what is cached', next: { ...state, cached: null } };
  if (root.phase === 'begun' && (cached === null || without.has('caches-end')))
    yield { kind: 'protocol', text: 'root: freeze the volume', next: withRoot(state, { phase: 'frozen' }) };
  const isAborted = root.phase === 'begun' || root.phase === 'frozen';
  const abort =
    isAborted || (root.phase === 'moved' && without.has('abort-before-moved')) ? spend(state, 'abort') : null;
  if (abort !== null)
    yield { kind: 'user', text: 'root: abort the move', next: withRoot(abort, { phase: 'here' }) };
  if (root !== rootDisk)
    yield { kind: 'protocol', text: 'root: flush', next: keeping({ ...state, rootDisk: root }) };
}

/** The volume's catalog imports its rows page by page, and reports. */
function* copySteps(state: MoveState, { without }: MoveConfiguration): Generator<Step> {
  const { root, rootDisk, own, ownDisk } = state;
  const asked = without.has('freeze-flushed') ? root : rootDisk;
  // The root answers by its present state, and the volume's catalog asks once it knows that the freeze is flushed.
  const isFrozen = ({ phase }: MovingRoot) =>
    phase === 'frozen' || (phase === 'begun' && without.has('frozen-waits'));
  const mayCopy = isFrozen(root) && isFrozen(asked);
  const from = own.catalog === root.catalog ? own : { ...NEW, catalog: root.catalog };
  if (mayCopy && asked.catalog === root.catalog && from.pages < PAGES) {
    const rows = root.done & (OF_PAGE[from.pages] ?? 0);
    const keys = without.has('keys-move') ? 0 : rows & state.keyed;
    const text = `own: import page ${from.pages}`;
    // The reserved numbers are in the first page.
    const reserved = from.pages > 0 || without.has('reserved-move') ? from.reserved : root.reserved;
    const imported = { done: from.done | rows, outcomes: from.outcomes | keys, reserved };
    const change = { ...from, pages: from.pages + 1, ...imported };
    yield { kind: 'protocol', text, next: withOwn(state, change) };
    const delayed = state.late === null ? spend(state, 'delay') : null;
    const late = { kind: 'page', catalog: from.catalog, page: from.pages, rows } as const;
    if (delayed !== null)
      yield { kind: 'fault', text: `own: page ${from.pages} is delayed`, next: { ...delayed, late } };
  }
  if (own.catalog === root.catalog && own.pages === PAGES && !own.begun)
    yield { kind: 'protocol', text: 'own: begin', next: withOwn(state, { begun: true }) };
  if (own !== ownDisk)
    yield { kind: 'protocol', text: 'own: flush', next: keeping({ ...state, ownDisk: own }) };
  const reported = without.has('copy-flushed') ? own : ownDisk;
  if (!reported.begun) return;
  const next = received(state, reported.catalog, without);
  if (next !== null) yield { kind: 'protocol', text: 'root: volume moved', next };
  const delayed = state.late === null ? spend(state, 'delay') : null;
  const late = { kind: 'report', catalog: reported.catalog, page: 0, rows: 0 } as const;
  if (delayed !== null)
    yield { kind: 'fault', text: 'own: the report is delayed', next: { ...delayed, late } };
}

/** @returns the state after the report that a catalog has begun; null if it changes nothing */
function received(state: MoveState, catalog: number, without: ReadonlySet<MoveRule>): MoveState | null {
  const { root } = state;
  const isThis = catalog === root.catalog || without.has('report-names-catalog');
  const isMoving = root.phase === 'frozen' || (root.phase === 'begun' && without.has('frozen-waits'));
  return isThis && isMoving ? withRoot(state, { phase: 'moved' }) : null;
}

function* serverSteps(state: MoveState, { without }: MoveConfiguration): Generator<Step> {
  const { root, rootDisk, list } = state;
  const announced = without.has('moved-flushed') ? root : rootDisk;
  if (announced.phase === 'moved' && list !== announced.catalog)
    yield { kind: 'protocol', text: 'server: learn the list', next: { ...state, list: announced.catalog } };
  // By an earlier list, the root has the inode whose replica the server compares.
  const check = list === 0 ? spend(state, 'check') : null;
  if (check === null) return;
  const step: Step = { kind: 'client', text: 'server: asks the root about a replica', next: check };
  const isMissing = root.phase === 'moved' && without.has('moved-is-elsewhere');
  yield isMissing ? { ...step, violation: 'The replica of a file that exists is deleted' } : step;
}

function* clientSteps(state: MoveState, configuration: MoveConfiguration): Generator<Step> {
  for (const budget of ['change', 'keyed'] as const) {
    const spent = spend(state, budget);
    if (spent === null) continue;
    const command = 1 << spent.nextCommand;
    const keyed = budget === 'keyed' ? spent.keyed | command : spent.keyed;
    const leaving = spent.named === 'own' ? spent.leaving | command : spent.leaving;
    yield* attempts(
      { ...spent, keyed, leaving, nextCommand: spent.nextCommand + 1 },
      command,
      false,
      configuration,
    );
  }
  yield* reservedNumbers(state, configuration);
  for (let command = 1; command <= state.sent; command <<= 1) {
    if ((state.sent & command) === 0) continue;
    yield* attempts(state, command, true, configuration);
  }
  const { root, list } = state;
  const cache = root.phase === 'here' && list === 0 && state.cached === null ? spend(state, 'cache') : null;
  if (cache !== null) yield { kind: 'client', text: 'client: caches', next: { ...cache, cached: root.done } };
}

/** A create by a number that the root has reserved; its contents are deleted once the number is void. */
function* reservedNumbers(state: MoveState, { without }: MoveConfiguration): Generator<Step> {
  const { root } = state;
  const name = `command ${state.nextCommand}`;
  const create = root.phase === 'here' ? spend(state, 'numbered') : null;
  if (create !== null) {
    const command = 1 << create.nextCommand;
    const { sent, numbered, nextCommand } = create;
    const pending = { sent: sent | command, numbered: numbered | command, nextCommand: nextCommand + 1 };
    const next = withRoot({ ...create, ...pending }, { reserved: root.reserved | command });
    yield { kind: 'client', text: `client: acknowledges ${name}, with a reserved number`, next };
  }
  const mayVoid = root.phase === 'here' || root.phase === 'begun' || without.has('voids-wait');
  const end = mayVoid && root.reserved !== 0 ? spend(state, 'void') : null;
  if (end === null) return;
  const next = withRoot({ ...end, voided: root.reserved }, { reserved: 0 });
  yield { kind: 'client', text: 'root: void the reserved numbers', next };
}

/** An attempt of a command, whose answer may be lost. */
function* attempts(
  state: MoveState,
  command: Commands,
  isRepeated: boolean,
  configuration: MoveConfiguration,
): Generator<Step> {
  const { without } = configuration;
  const isKeyed = (state.keyed & command) !== 0;
  const byList = isKeyed || (isRepeated && without.has('retries-stay'));
  const isServing = state.list === state.own.catalog && state.list !== 0;
  const serves = isServing || (without.has('ready-serves') && state.own.begun);
  const goesToOwn = byList
    ? state.list !== 0 || (isKeyed && without.has('ready-serves') && serves)
    : (state.leaving & command) !== 0;
  const sent = { ...state, sent: state.sent | command };
  yield* goesToOwn ? atOwn(sent, command, serves) : atRoot(sent, command, configuration);
  if (!goesToOwn && without.has('ready-serves') && serves) yield* atOwn(sent, command, serves);
}

function* atRoot(state: MoveState, command: Commands, { without }: MoveConfiguration): Generator<Step> {
  const { root } = state;
  const name = `client: command ${Math.log2(command)}`;
  const isKnown = (root.done & command) !== 0;
  const changes = root.phase === 'here' || root.phase === 'begun';
  if (isKnown && (changes || !without.has('outcomes-first'))) {
    const next = answered(state, command);
    yield { kind: 'client', text: `${name} repeated: outcome at the root`, next };
  } else if (root.phase === 'moved') {
    // The server fetches the list, which the root flushes before.
    if (state.list !== root.catalog) return;
    yield {
      kind: 'client',
      text: `${name} refused at the root: moved`,
      next: { ...state, named: 'own', leaving: state.leaving | command },
    };
  } else if (lacksNumber(state, root, command)) {
    yield withoutNumber(state, command, `${name} refused at the root: not reserved`);
  } else if (changes || without.has('frozen-waits')) {
    // What is cached is recalled before it changes.
    const change = { done: root.done | command, reserved: root.reserved & ~command };
    const done = withRoot({ ...state, cached: null }, change);
    yield { kind: 'client', text: `${name} executed at the root`, next: answered(done, command) };
    const lost = spend(done, 'retry');
    if (lost !== null)
      yield { kind: 'fault', text: `${name} executed at the root, its answer is lost`, next: lost };
  }
}

function* atOwn(state: MoveState, command: Commands, serves: boolean): Generator<Step> {
  const { own } = state;
  const name = `client: command ${Math.log2(command)}`;
  if (!serves || !own.begun) return;
  if ((own.outcomes & command) !== 0) {
    yield {
      kind: 'client',
      text: `${name} repeated: outcome in the own catalog`,
      next: answered(state, command),
    };
    return;
  }
  if (lacksNumber(state, own, command)) {
    yield withoutNumber(state, command, `${name} refused in the own catalog: not reserved`);
    return;
  }
  const done = withOwn(state, {
    done: own.done | command,
    outcomes: own.outcomes | command,
    reserved: own.reserved & ~command,
  });
  const step: Step = {
    kind: 'client',
    text: `${name} executed in the own catalog`,
    next: answered(done, command),
  };
  if ((state.voided & command) !== 0) yield { ...step, violation: 'A file is created without its contents' };
  else yield (own.done & command) === 0 ? step : { ...step, violation: 'A command is executed twice' };
}

function lacksNumber(
  { numbered }: MoveState,
  { reserved }: Pick<OwnCatalog, 'reserved'>,
  command: Commands,
): boolean {
  return (numbered & command & ~reserved) !== 0;
}

/** The refusal of a create without its number, which is final. */
function withoutNumber(state: MoveState, command: Commands, text: string): Step {
  const step: Step = { kind: 'client', text, next: { ...state, sent: state.sent & ~command } };
  return (state.voided & command) !== 0 ? step : { ...step, violation: 'An acknowledged create is refused' };
}

function answered(state: MoveState, command: Commands): MoveState {
  return keeping({ ...state, sent: state.sent & ~command, answered: state.answered | command });
}

function* lateSteps(state: MoveState, { without }: MoveConfiguration): Generator<Step> {
  const { late, own } = state;
  if (late === null) return;
  const rest = { ...state, late: null };
  if (late.kind === 'report') {
    const next = received(rest, late.catalog, without);
    if (next !== null) yield { kind: 'fault', text: `root: late report of catalog ${late.catalog}`, next };
    return;
  }
  if (late.catalog !== own.catalog) return;
  const isNext = late.page === own.pages;
  if (!isNext && !without.has('pages-in-order')) {
    yield { kind: 'fault', text: `own: late page ${late.page} is ignored`, next: rest };
    return;
  }
  const step: Step = {
    kind: 'fault',
    text: `own: late page ${late.page}`,
    next: withOwn(rest, { pages: own.pages + 1, done: own.done | late.rows }),
  };
  yield isNext ? step : { ...step, violation: 'Rows are imported twice' };
}

function* faults(state: MoveState): Generator<Step> {
  const spent = spend(state, 'power-loss');
  if (spent === null) return;
  for (const root of new Set([state.root, state.rootDisk]))
    for (const own of new Set([state.own, state.ownDisk])) {
      const present =
        root.phase === 'moved' && own.catalog === root.catalog ? root.done | own.done : root.done;
      // What was answered and not flushed may be lost.
      const next = { ...spent, root, rootDisk: root, own, ownDisk: own, cached: null };
      yield {
        kind: 'fault',
        text: 'all servers lose power',
        next: { ...next, answered: state.kept | (state.answered & present) },
      };
    }
}

/** The rows of the volume, where it is served. */
function rowsOf({ root, own }: MoveState): Commands {
  if (root.phase !== 'moved') return root.done;
  return own.catalog === root.catalog && own.begun ? own.done : 0;
}

function violationOf(state: MoveState): string | null {
  const { answered, kept, root, list, cached } = state;
  const rows = rowsOf(state);
  if (((answered | kept) & ~rows) !== 0) return 'A command that was answered is lost';
  if (list !== 0 && (root.phase !== 'moved' || root.catalog !== list))
    return 'The list names a catalog that does not have the volume';
  if (cached !== null && cached !== rows) return 'A client has cached what has changed';
  return null;
}

/** The volume is wholly at the root, or wholly in its own catalog, and all know where. */
function isResolved({ root, list, own }: MoveState): boolean {
  if (root.phase === 'here') return list === 0;
  return root.phase === 'moved' && list === root.catalog && own.begun;
}
