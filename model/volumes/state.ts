/** What the model of volumes' catalogs consists of; README.md says what is abstracted. */

import type { StepTo } from './explorer.ts';

/** A set of servers, as bits. */
export type Servers = number;

export type ServerState = 'in' | 'draining' | 'out';
export type RowState = 'creating' | 'ready' | 'removing' | 'removed';

/** A volume in the root catalog. */
export interface Row {
  readonly name: number;
  readonly state: RowState;
  /** The list's version at which the row was made, and at which it got its present state. */
  readonly made: number;
  readonly since: number;
  /** The newest reported view of the volume's catalog. */
  readonly view: number;
  readonly members: Servers;
  /** First numbers of the ranges given to the volume. */
  readonly ranges: readonly number[];
}

/** A server as a catalog knows it: its state, and the list's version at which it got it. */
export interface Known {
  readonly state: ServerState;
  readonly since: number;
}

/** A server's removal as a volume's catalog has confirmed it: it has nothing there, and places nothing there. */
export interface Confirmation {
  readonly volume: number;
  readonly server: number;
  readonly since: number;
}

/** The root catalog. Servers and rows are what it announces as one versioned list. */
export interface Root {
  readonly version: number;
  readonly servers: readonly Known[];
  readonly rows: readonly Row[];
  readonly confirmed: readonly Confirmation[];
  /** The next number for its own files, and how many ranges it has given to volumes. */
  readonly next: number;
  readonly rangeCount: number;
}

/** A volume's catalog after its latest command. */
export interface Contents {
  /** Log position; a loss of power begins a new epoch. */
  readonly epoch: number;
  readonly seq: number;
  readonly view: number;
  readonly members: Servers;
  readonly created: boolean;
  readonly closed: boolean;
  /** `since` of the removal that it refused last because it was not empty; 0: none. */
  readonly refused: number;
  readonly servers: readonly Known[];
  /** Where it has placed files, and where clients may still create files under reserved numbers. */
  readonly placed: Servers;
  readonly reserved: Servers;
  readonly ranges: readonly number[];
  /** Numbers from `next` to `limit` may be given out; an epoch begins at the limit. */
  readonly next: number;
  readonly limit: number;
}

export interface Replica {
  /** `lost`: it may have acknowledged more than it has, and does not vote until it is caught up. */
  readonly trust: 'intact' | 'lost';
  readonly now: Contents;
  /** What survives a loss of power. */
  readonly disk: Contents;
}

export interface Server {
  /** The newest list that it has learned, on its disk; null: a new disk that is not registered yet. */
  readonly list: Root | null;
  /** The version of the list when its disk was registered. */
  readonly born: number;
}

/** From a volume's catalog to the root. */
export type Report =
  | { readonly kind: 'created' | 'closed'; readonly volume: number }
  | { readonly kind: 'refused'; readonly volume: number; readonly since: number }
  | ({ readonly kind: 'none-left' } & Confirmation)
  | { readonly kind: 'view'; readonly volume: number; readonly view: number; readonly members: Servers }
  | { readonly kind: 'range-wanted'; readonly volume: number; readonly count: number };

export type Late =
  | { readonly kind: 'list'; readonly to: number; readonly list: Root }
  | { readonly kind: 'report'; readonly report: Report };

export type Budget =
  | 'create'
  | 'remove'
  | 'drain'
  | 'undrain'
  | 'expel'
  | 'dead'
  | 'place'
  | 'reserve'
  | 'number'
  | 'root-number'
  | 'move'
  | 'wipe'
  | 'power-loss'
  | 'delay';

export interface State {
  readonly root: Root;
  readonly rootDisk: Root;
  readonly rootEpoch: number;
  readonly servers: readonly Server[];
  /** By volume, then by server. */
  readonly replicas: readonly (readonly (Replica | null)[])[];
  /** Volumes whose catalog has had a primary since the last loss of power. */
  readonly active: number;
  /** A copy of a message that arrives late, or never. */
  readonly late: Late | null;
  readonly left: Readonly<Partial<Record<Budget, number>>>;
  /** For the properties: numbers given out; servers removed as dead; views in which a server dropped its replica. */
  readonly given: readonly number[];
  readonly dead: Servers;
  readonly dropped: readonly (readonly number[])[];
}

export type Step = StepTo<State>;

/** Rules that a planted mistake turns off. */
export type Rule =
  | 'lists-flushed'
  | 'reports-flushed'
  | 'lists-ascend'
  | 'new-disk-is-lost'
  | 'removing-is-opened'
  | 'removed-is-listed'
  | 'name-until-removed'
  | 'refusal-names-removal'
  | 'closed-before-removed'
  | 'confirmation-names-drain'
  | 'servers-ascend'
  | 'created-with-servers'
  | 'reserved-counts'
  | 'members-count'
  | 'move-respects-drain'
  | 'placement-respects-drain'
  | 'every-volume-confirms'
  | 'views-ascend'
  | 'views-synced'
  | 'ranges-apart'
  | 'limit-flushed'
  | 'epoch-skips';

export interface Configuration {
  readonly serverCount: number;
  /** First members that a volume's catalog may get. */
  readonly members: readonly Servers[];
  readonly oneName: boolean;
  /** Whether any majority may act; else all members act together. */
  readonly laggards: boolean;
  readonly budgets: Readonly<Partial<Record<Budget, number>>>;
  /** Planted mistakes. */
  readonly without: ReadonlySet<Rule>;
}

/** Numbers per range, per step of a volume's limit, and per epoch of the root. */
export const RANGE = 2;
export const STEP = 1;
export const ROOT_EPOCH = 2;
/** Ranges of volumes begin here; the root's own numbers stay below. */
export const RANGES_FROM = 100;
export const REMOVED_VIEW = 99;

export function has(set: Servers, server: number): boolean {
  return (set & (1 << server)) !== 0;
}

export function sizeOf(set: Servers): number {
  let size = 0;
  for (let rest = set; rest > 0; rest >>= 1) size += rest & 1;
  return size;
}

export function isMajority(voters: Servers, members: Servers): boolean {
  return sizeOf(voters & members) * 2 > sizeOf(members);
}

export function namesOf(set: Servers): string {
  return [...'ABCDEF'].filter((_, server) => has(set, server)).join('');
}

export function nameOf(server: number): string {
  return namesOf(1 << server);
}

/** @returns `list` with another value at `index` */
export function replaced<Value>(list: readonly Value[], index: number, value: Value): readonly Value[] {
  return list.map((old, at) => (at === index ? value : old));
}

/** @returns null if the budget is used up */
export function spend(state: State, budget: Budget): State | null {
  const left = state.left[budget] ?? 0;
  return left === 0 ? null : { ...state, left: { ...state.left, [budget]: left - 1 } };
}

/** Whether a loss of power can happen: else everything is durable at once, and states do not differ by it. */
export function losesPower(state: State): boolean {
  return (state.left['power-loss'] ?? 0) > 0;
}

export function initialState({ serverCount, budgets }: Configuration): State {
  const servers = Array.from({ length: serverCount }, (): Known => ({ state: 'in', since: 0 }));
  const root: Root = { version: 1, servers, rows: [], confirmed: [], next: 0, rangeCount: 0 };
  return {
    root,
    rootDisk: root,
    rootEpoch: 1,
    servers: servers.map(() => ({ list: root, born: 0 })),
    replicas: [],
    active: 0,
    late: null,
    left: budgets,
    given: [],
    dead: 0,
    dropped: [],
  };
}
