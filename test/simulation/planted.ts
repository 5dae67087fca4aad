import type { Anchor } from './anchor.ts';

/**
 * Known bugs, each one change of the real code as it is loaded, and each against one rule. A simulation counts once it
 * has caught them all: one that cannot tell the broken protocol from the right one proves nothing about either. There
 * are no switches in the production code.
 */

export type PlantedLayer = 'lease' | 'claim' | 'replica';

/** A change of one expression or statement. */
export interface Mutation extends Anchor {
  /** Path from the root of the repository. */
  readonly file: string;
}

export interface CaughtBy {
  /** Random seeds 1 to this one: one of them must notice. `npm run planted` plays them, the tests of each commit do not. */
  readonly seeds?: number;
  /** The directed scenario of that name must notice. */
  readonly directed?: string;
  /** The conversation with one replica in that file must go otherwise. */
  readonly conversation?: string;
  /** What the scenario must say, where something else would notice first and prove nothing. */
  readonly says?: string;
  /**
   * A test of the servers' code must fail: its file, and its name or the beginning of it. With `hangs` it may also not end, which else is
   * no way to notice a bug: it would say nothing of which rule was broken. `isLong`: the test starts servers and takes
   * more than three seconds of processor, so `npm run planted` alone runs it with the bug.
   */
  readonly test?: {
    readonly file: string;
    readonly name: string;
    readonly hangs?: true;
    readonly isLong?: true;
  };
  /** The directed schedule of composed servers, clients and mounts must not happen as it says: its name in `SCHEDULES`. */
  readonly schedule?: string;
  /**
   * Seeds of composed servers, clients and mounts: one of 1 to `seeds` must violate a rule. `args` is the command line of
   * `npm run simulate:cluster` without `--seed`. `npm run planted` alone plays them.
   */
  readonly run?: { readonly args: string; readonly seeds: number };
}

/** Where the directed schedules of composed servers, clients and mounts are, as `NAME.txt`. */
export const SCHEDULES = 'test/testdata/simulation/cluster';

/** One bug. */
export interface Planted extends Mutation {
  /** Number in the list of bugs, unique with the layer. */
  readonly row: string;
  readonly layer: PlantedLayer;
  /** What holds without the bug. */
  readonly rule: string;
  /** Defences that cover the bug and are taken away with it, so that it shows. */
  readonly also?: readonly Mutation[];
  /** The scenario notices neither the bug alone nor the loss of its covers alone: each is the other's defence. */
  readonly paired?: boolean;
  readonly caughtBy: CaughtBy;
}

/** What the simulation of a layer exports as `campaign`. Both return the first violation, or null. */
export interface Campaign {
  /** Scripted schedules, by name. Each passes on the unchanged code. */
  readonly scenarios: Readonly<Record<string, () => string | null>>;
  /** One random run. Equal seeds give equal runs. */
  runSeed(seed: number): string | null;
  /** The tests of the layer play so many seeds of the unchanged code anyway. Absent: none. */
  readonly seedsPlayed?: number;
}

/** What the simulation of a layer exports as `campaign`, by the module in this folder. */
export const CAMPAIGN_MODULES: Readonly<Record<PlantedLayer, string>> = {
  lease: 'lease-campaign.ts',
  claim: 'claim-campaign.ts',
  replica: 'replica-campaign.ts',
};
