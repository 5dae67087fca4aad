import { pino } from 'pino';
import { ROOT_CATALOG } from '../../base/ids.ts';
import { runQuery } from '../../catalog/queries.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { MoveLimits } from '../../server/membership/move-limits.ts';
import { Steward } from '../../server/membership/steward.ts';
import { Placement } from '../../server/process/placement.ts';
import type { Query, QueryResults } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { FilledCatalog, processorUs, SERVERS } from './filled-catalog.ts';

/** The least of so many measurements is shown: the others contain garbage collections and other threads' work. */
const MEASUREMENTS = 20;

export interface StewardFigures {
  readonly files: number;
  /** Processor time of the catalog's commands for each file. */
  readonly createUs: number;
  /** Processor time of the first round, which looks for files to move. */
  readonly firstRoundMs: number;
  /** Processor time of a round in which nothing is to do. */
  readonly idleRoundMs: number;
}

/** Measures the steward in a cluster where nothing is to be moved. */
export async function measureSteward(files: number): Promise<StewardFigures> {
  const begunUs = processorUs();
  const { db } = new FilledCatalog(files);
  const createUs = (processorUs() - begunUs) / files;
  const placement = new Placement({ configured: [], isConnected: () => true });
  const refuse = (): never => {
    throw new Error('Nothing is to be moved');
  };
  let position = 0;
  const newSteward = () =>
    new Steward({
      log: pino({ level: 'silent' }),
      replaceAfterMs: 60_000,
      periodMs: 2 ** 30,
      world: systemWorld,
      isCatalogPrimary: () => true,
      query: async <Q extends Query>(query: Q) => runQuery(db, query as never) as QueryResults[Q['kind']],
      candidates: (servers) => placement.candidates(servers),
      isConnected: () => true,
      catalogMembers: () => SERVERS,
      // Each round is as after a command.
      catalogPosition: () => String(position++),
      catalog: ROOT_CATALOG,
      catalogMembersWanted: () => SERVERS.length,
      moveLimits: new MoveLimits(systemWorld, { filesPerS: Infinity, bytesPerS: Infinity }),
      knownPrimary: refuse,
      order: refuse,
      changeMembers: refuse,
      changeCatalogMembers: refuse,
      commandsVersion: () => COMMANDS_VERSION,
      rebalancePeriodMs: 0,
      partToBalance: () => 1,
      announce: () => undefined,
    });
  try {
    const firstMs: number[] = [];
    const idleMs: number[] = [];
    for (let place = 0; place < MEASUREMENTS; place++) {
      const steward = newSteward();
      try {
        firstMs.push(await roundMs(steward));
        idleMs.push(await roundMs(steward));
      } finally {
        steward.close();
      }
    }
    return { files, createUs, firstRoundMs: Math.min(...firstMs), idleRoundMs: Math.min(...idleMs) };
  } finally {
    db.close();
  }
}

async function roundMs(steward: Steward): Promise<number> {
  const begunUs = processorUs();
  await steward.runRound();
  return (processorUs() - begunUs) / 1_000;
}

if (import.meta.main) {
  for (const files of [1_000, 300_000]) {
    const { createUs, firstRoundMs, idleRoundMs } = await measureSteward(files);
    const figures = `first round ${firstRoundMs.toFixed(2)} ms, idle round ${idleRoundMs.toFixed(2)} ms`;
    process.stdout.write(`${files} files: ${figures}, creation ${createUs.toFixed(1)} µs each\n`);
  }
}
