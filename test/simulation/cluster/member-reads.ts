/**
 * Has backups of the catalog answer queries as soon as they have a read lease, however few queries come: whether that
 * pays is no matter of safety, and few programs send so many.
 */

import { MemberReads } from '../../../server/catalog/member-reads.ts';
import { ReadDemand } from '../../../server/catalog/read-demand.ts';
import type { Run } from './run.ts';

/** The name of the count of answers of backups during a fault. */
export const ANSWERED_BY_BACKUP = 'path: a backup of the catalog answers a query';

const { count } = ReadDemand.prototype;
const { answer } = MemberReads.prototype;
let isForced = false;
let counted: Run | null = null;

ReadDemand.prototype.count = function (nowMs, seq) {
  const demand = count.call(this, nowMs, seq);
  return isForced ? 'high' : demand;
};

MemberReads.prototype.answer = async function (query) {
  const answered = await answer.call(this, query);
  if (answered !== null && counted?.cluster.isTroubled === true) counted.count(ANSWERED_BY_BACKUP);
  return answered;
};

/** Forces the answers of this run from now on; null ends it. */
export function forceMemberReads(run: Run | null): void {
  isForced = run !== null;
  counted = run;
}
