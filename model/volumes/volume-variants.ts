import { explore, type Finding } from './explorer.ts';
import type { Budget, Configuration, Rule } from './state.ts';
import { type MoveConfiguration, type MoveRule, moveSearch } from './volume-move.ts';
import { volumeSearch } from './volume-search.ts';

/** A search with a known result. */
export interface Variant {
  readonly name: string;
  /** `verified`: correct rules. `counter-example`: the planted mistake shows. */
  readonly expectation: 'verified' | 'counter-example';
  /** `quick`: seconds at most; `deep`: minutes. */
  readonly effort: 'quick' | 'deep';
  readonly about: string;
  /** Rules that are turned off. */
  readonly without: ReadonlySet<Rule | MoveRule>;
  explore(statesMax: number): Finding;
}

/** A variant of the protocols without moves of volumes. */
interface VolumeVariant extends Variant {
  readonly configuration: Configuration;
}

type Shape = Pick<Configuration, 'serverCount' | 'members' | 'oneName' | 'laggards'>;
type Budgets = Readonly<Partial<Record<Budget, number>>>;

/** Three servers have the catalog; any two act, and the third may be away for any time. */
const THREE: Shape = { serverCount: 3, members: [0b111], oneName: true, laggards: true };
/** One server has all catalogs: what matters is what the root and they agree on. */
const NUMBERS: Shape = { serverCount: 1, members: [0b1], oneName: false, laggards: false };
/** The last server is drained, and has files only. */
const DRAINED: Shape = { serverCount: 2, members: [0b01], oneName: false, laggards: false };
/** A catalog of two members, which both act, with or without the server that is drained. */
const MOVED: Shape = { serverCount: 3, members: [0b011, 0b110], oneName: false, laggards: true };

const NONE: ReadonlySet<Rule> = new Set();

function ofVolumes(
  configuration: Configuration,
  variant: Pick<Variant, 'name' | 'expectation' | 'about'>,
): VolumeVariant {
  const search = (statesMax: number) => explore(volumeSearch(configuration), statesMax);
  return { ...variant, effort: 'quick', configuration, without: configuration.without, explore: search };
}

function verified(name: string, about: string, shape: Shape, budgets: Budgets): VolumeVariant {
  return ofVolumes({ ...shape, budgets, without: NONE }, { name, expectation: 'verified', about });
}

function deep(name: string, about: string, shape: Shape, budgets: Budgets): VolumeVariant {
  return { ...verified(name, about, shape, budgets), effort: 'deep' };
}

const LIFE = { create: 1, remove: 1 };
const WHOLE_DRAIN = { create: 1, drain: 1, expel: 1 };

const life = verified('life', 'creation and removal', THREE, LIFE);
const lostDisk = verified('life-lost-disk', 'creation and removal, one disk is lost', THREE, {
  ...LIFE,
  wipe: 1,
});
const sameName = verified('life-same-name', 'the name is used again', THREE, { create: 2, remove: 1 });
const lateMessage = verified('life-late', 'one message arrives late or again', THREE, { ...LIFE, delay: 1 });
const powerLoss = verified('life-power-loss', 'all lose power', THREE, { ...LIFE, 'power-loss': 1 });
const lostDiskNumbers = deep('life-numbers', 'a disk is lost while numbers are given', THREE, {
  ...{ create: 1, wipe: 1, number: 2 },
});
const refusedRemoval = verified('life-not-empty', 'removals are refused, reports are late', DRAINED, {
  ...{ create: 1, remove: 2, place: 1, delay: 1 },
});
const numbers = verified('numbers-power-loss', 'root and one volume give numbers', NUMBERS, {
  ...{ create: 1, number: 3, 'root-number': 2, 'power-loss': 1 },
});
const ranges = verified('numbers-two-volumes', 'two volumes use up ranges', NUMBERS, {
  create: 2,
  number: 4,
});
const drain = verified('drain-power-loss', 'files and reservations at a removed server', DRAINED, {
  ...{ ...WHOLE_DRAIN, place: 1, reserve: 1, dead: 1, 'power-loss': 1 },
});
const drainTwice = verified('drain-twice', 'a server is drained, let in and drained', DRAINED, {
  ...{ ...WHOLE_DRAIN, drain: 2, undrain: 1, place: 1, delay: 1 },
});
const drainCreations = verified('drain-creations', 'volumes are created meanwhile', DRAINED, {
  ...{ ...WHOLE_DRAIN, create: 2, place: 1 },
});
const drainPrimaries = verified(
  'drain-primaries',
  'the primary changes',
  { ...MOVED, members: [0b011] },
  {
    ...{ ...WHOLE_DRAIN, place: 1 },
  },
);
const drainMoves = verified('move-drain', 'the catalog moves from or to the drained server', MOVED, {
  ...{ ...WHOLE_DRAIN, move: 1 },
});
const moves = deep(
  'move-late',
  'the catalog moves twice, reports are late',
  { ...MOVED, members: [0b011] },
  {
    ...{ create: 1, move: 2, delay: 1 },
  },
);
const movesBack = verified('move-back', 'the catalog of one member moves there and back', DRAINED, {
  ...{ create: 1, move: 2, delay: 1 },
});
const movePowerLoss = verified(
  'move-power-loss',
  'it moves, and all lose power',
  { ...MOVED, members: [0b011] },
  {
    ...{ create: 1, move: 1, 'power-loss': 1 },
  },
);

const CORRECT: readonly VolumeVariant[] = [
  ...[life, lostDisk, sameName, lateMessage, powerLoss, lostDiskNumbers, refusedRemoval, numbers, ranges],
  ...[drain, drainTwice, drainCreations, drainPrimaries, drainMoves, moves, movesBack, movePowerLoss],
];

function planted({ configuration }: VolumeVariant, rule: Rule, about: string): Variant {
  const broken = { ...configuration, without: new Set([rule]) };
  return ofVolumes(broken, { name: `without-${rule}`, expectation: 'counter-example', about });
}

/** Each rule of the protocol, turned off. */
const PLANTED: readonly Variant[] = [
  planted(powerLoss, 'lists-flushed', 'servers act on a list that a loss of power can undo'),
  planted(powerLoss, 'reports-flushed', 'the root acts on commands that a loss of power can undo'),
  planted(lateMessage, 'lists-ascend', 'a server goes back to an earlier list'),
  planted(lostDiskNumbers, 'new-disk-is-lost', 'a new disk votes with an empty catalog'),
  planted(life, 'removing-is-opened', 'servers do not open a catalog to close it'),
  planted(life, 'removed-is-listed', 'the list forgets removed volumes'),
  planted(sameName, 'name-until-removed', 'a name is free while its volume is being removed'),
  planted(refusedRemoval, 'refusal-names-removal', 'a late refusal counts for a later removal'),
  planted(life, 'closed-before-removed', 'members drop the catalog before it is closed'),
  planted(drainTwice, 'confirmation-names-drain', 'a confirmation counts for a later drain'),
  planted(drainPrimaries, 'servers-ascend', 'a catalog goes back to an earlier list of servers'),
  planted(drainCreations, 'created-with-servers', 'a new catalog assumes that no server is removed'),
  planted(drain, 'reserved-counts', 'reserved numbers do not keep a server'),
  planted(drainMoves, 'members-count', 'membership of the catalog does not keep a server'),
  planted(drainMoves, 'move-respects-drain', 'the catalog moves to a draining server'),
  planted(drain, 'placement-respects-drain', 'files are placed at a draining server'),
  planted(drainCreations, 'every-volume-confirms', 'a volume in creation is not asked'),
  planted(movePowerLoss, 'views-synced', 'a move counts before it is on disks'),
  planted(movesBack, 'views-ascend', 'a late report of an earlier view counts'),
  planted(numbers, 'ranges-apart', 'ranges come from the counter of the root’s own numbers'),
  planted(numbers, 'limit-flushed', 'numbers are given out before their limit is durable'),
  planted(numbers, 'epoch-skips', 'an epoch continues at the counter, not at the limit'),
];

const DEEP: readonly Variant[] = [
  deep('life-deep', 'lost disk, late message', THREE, { ...LIFE, wipe: 1, delay: 1 }),
  deep('life-power-loss-deep', 'lost disk, all lose power', THREE, { ...LIFE, wipe: 1, 'power-loss': 1 }),
  deep('numbers-deep', 'two volumes, all lose power', NUMBERS, {
    ...{ create: 2, number: 2, 'power-loss': 1 },
  }),
  deep('drain-deep', 'two volumes, all lose power', DRAINED, {
    ...{ ...WHOLE_DRAIN, create: 2, place: 1, reserve: 1, 'power-loss': 1 },
  }),
  deep('move-deep', 'two moves, drain', MOVED, { ...WHOLE_DRAIN, move: 2 }),
];

function moved(
  name: string,
  about: string,
  budgets: MoveConfiguration['budgets'],
  broken?: MoveRule,
): Variant {
  const without: ReadonlySet<MoveRule> = new Set(broken === undefined ? [] : [broken]);
  return {
    name: broken === undefined ? name : `without-${broken}`,
    expectation: broken === undefined ? 'verified' : 'counter-example',
    ...{ effort: 'quick', about, without },
    explore: (statesMax) => explore(moveSearch({ budgets, without }), statesMax),
  };
}

const ONE = { move: 1, change: 1, retry: 1 };
const CUT = { ...ONE, change: 2, 'power-loss': 1 };
const AGAIN = { move: 2, abort: 1, change: 1, delay: 1 };
const KEYED = { move: 1, keyed: 1, retry: 1 };
const NUMBERED = { move: 1, numbered: 2, void: 1 };
const CACHED = { move: 1, change: 1, cache: 1 };

/** A volume of the root catalog gets a catalog of its own. */
const VOLUME_MOVES: readonly Variant[] = [
  moved('volume-move', 'a volume moves while it changes', { ...ONE, change: 2, cache: 1, check: 1 }),
  moved('volume-move-power-loss', 'all lose power', CUT),
  moved('volume-move-again', 'the move is aborted, and begins again; a message is late', AGAIN),
  moved('volume-move-keyed', 'requests with a key are repeated', { ...KEYED, abort: 1, 'power-loss': 1 }),
  moved('volume-move-numbered', 'files are created by reserved numbers', { ...NUMBERED, abort: 1, retry: 1 }),
  moved('', 'a volume changes while its rows are copied', { ...ONE }, 'frozen-waits'),
  moved('', 'rows are copied before the freeze is durable', CUT, 'freeze-flushed'),
  moved('', 'the root counts on a copy that a loss of power can undo', CUT, 'copy-flushed'),
  moved('', 'servers act on a move that a loss of power can undo', { ...CUT, abort: 1 }, 'moved-flushed'),
  moved('', 'a client caches what changes elsewhere', CACHED, 'caches-end'),
  moved('', 'the new catalog serves once it has all rows', { ...ONE, abort: 1 }, 'ready-serves'),
  moved('', 'a move that has ended is aborted', { ...ONE, abort: 1 }, 'abort-before-moved'),
  moved('', 'a report of an aborted move counts for the next one', AGAIN, 'report-names-catalog'),
  moved('', 'a late page is imported again', { move: 1, change: 2, delay: 1 }, 'pages-in-order'),
  moved('', 'a repeated command is refused before its outcome is looked up', ONE, 'outcomes-first'),
  moved('', 'servers repeat a command in the catalog that their list names', ONE, 'retries-stay'),
  moved('', 'the new catalog does not know requests with a key', KEYED, 'keys-move'),
  moved('', 'reserved numbers stay at the root', NUMBERED, 'reserved-move'),
  moved('', 'numbers are voided while they are copied', NUMBERED, 'voids-wait'),
  moved('', 'the root answers that moved inodes do not exist', { move: 1, check: 1 }, 'moved-is-elsewhere'),
];

export const VARIANTS: readonly Variant[] = [...CORRECT, ...PLANTED, ...VOLUME_MOVES, ...DEEP];
