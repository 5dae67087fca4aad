/** The text of lease messages in a trace: `read 58/3@b cell 2`. */
import { ballotText } from '../../lease/ballot.ts';
import type { Lease } from '../../lease/lease.ts';
import type { LeaseMessage } from '../../lease/messages.ts';
import { START_MS } from './world.ts';

export function leaseMessageText(message: LeaseMessage): string {
  const details = [
    `cell ${message.cell}`,
    message.view === 1 ? '' : `view ${message.view}`,
    'lease' in message ? leaseText(message.lease) : '',
    'written' in message ? `written ${ballotText(message.written)}` : '',
    'largestBallot' in message ? `${ballotText(message.largestBallot)} stands` : '',
    'reason' in message ? message.reason : '',
  ];
  const ballot = ballotText(message.kind === 'release' ? message.uid : message.ballot);
  return [message.kind, ballot, ...details.filter((text) => text !== '')].join(' ');
}

/** The end of a lease in a trace: since the begin of the run. */
export function untilText(untilMs: number): string {
  return (untilMs - START_MS).toFixed(2);
}

function leaseText(lease: Lease | null): string {
  if (lease === null) return 'no lease';
  // In PaxosLease a lease in a message has a span instead of an end.
  const isSpan = lease.untilMs < START_MS / 2;
  const end = isSpan ? `for ${lease.untilMs.toFixed(2)} ms` : `until ${untilText(lease.untilMs)}`;
  return `(${lease.holder} ${end}${lease.released ? ', released' : ''})`;
}
