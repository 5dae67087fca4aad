/**
 * Known bugs, each a change of one line in a copy of the real code. A simulation counts once it has
 * caught them all: one that cannot tell the broken protocol from the right one proves nothing about
 * either. There are no switches in the production code.
 */

export type PlantedLayer = 'lease' | 'replica';

/** One bug. `find` occurs exactly once in `file`; the copy has `replace` there instead. */
export interface Planted {
  readonly row: string;
  readonly layer: PlantedLayer;
  /** Path from the root of the repository. */
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly what: string;
  /** Who must notice: the directed scenario of that name, random seeds 1 to `seeds`, or each of both. */
  readonly caughtBy: { readonly seeds?: number; readonly directed?: string };
}

/** What the simulation of a layer exports as `campaign`. Both return the first violation, or null. */
export interface Campaign {
  /** Scripted schedules, by name. Each passes on the unchanged code. */
  readonly scenarios: Readonly<Record<string, () => string | null>>;
  /** One random run. Equal seeds give equal runs. */
  runSeed(seed: number): string | null;
}

/** The module in this folder that exports the `campaign` of a layer. */
export const CAMPAIGN_MODULES: Readonly<Record<PlantedLayer, string>> = {
  lease: 'lease-world.ts',
  replica: 'replica-world.ts',
};

export const PLANTED_LEASE: readonly Planted[] = [];
