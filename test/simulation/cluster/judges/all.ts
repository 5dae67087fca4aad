import type { Judge } from '../judge.ts';
import { CatalogsJudge } from './catalogs.ts';
import { HistoryJudge } from './history.ts';
import { IdleJudge } from './idle.ts';
import { MembersJudge } from './members.ts';
import { ReplicasJudge } from './replicas.ts';

/** @returns the judges of one run, in the order in which they judge */
export function judges(): readonly Judge[] {
  return [new MembersJudge(), new CatalogsJudge(), new IdleJudge(), new ReplicasJudge(), new HistoryJudge()];
}
