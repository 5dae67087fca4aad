/**
 * The acceptor alone, as conversations: `read k`, `write k lease=holder/until [acquires]`, `release uid`, with ballots
 * written interval.round@server.
 */
import { fileURLToPath } from 'node:url';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import { BALLOT_ZERO, type Ballot, ballotCompare } from '../../lease/ballot.ts';
import type { Lease } from '../../lease/lease.ts';
import {
  REGISTER_EMPTY,
  registerRead,
  registerRelease,
  registerStillValid,
  registerWrite,
} from '../../lease/register.ts';
import { type Handler, playConversations } from '../data-driven.ts';

const LIFE = 1 as Incarnation;

function ballotParse(text: string | undefined): Ballot {
  const match = /^(\d+)\.(\d+)@([a-z]+)$/.exec(text ?? '');
  if (match === null) throw new Error(`Not a ballot: ${text}`);
  const [, interval, round, server] = match;
  return { interval: Number(interval), round: Number(round), server: server as ServerId, incarnation: LIFE };
}

function ballotPrint(k: Ballot): string {
  return ballotCompare(k, BALLOT_ZERO) === 0 ? '⊥' : `${k.interval}.${k.round}@${k.server}`;
}

function leasePrint(lease: Lease | null): string {
  if (lease === null) return '⊥';
  return `${lease.holder}/${lease.untilMs}${lease.released ? '/released' : ''}`;
}

function start(): Handler {
  let register = REGISTER_EMPTY;
  const play = ([verb, ...words]: readonly string[]): string => {
    const k = ballotParse(words[0]);
    switch (verb) {
      case 'read': {
        const [next, reply] = registerRead(register, k);
        register = next;
        if (reply.kind === 'nack-read') return `nack-read standing=${ballotPrint(reply.largestBallot)}`;
        return `ack-read lease=${leasePrint(reply.lease)} written=${ballotPrint(reply.written)}`;
      }
      case 'write':
      case 'still-valid': {
        const [holder, until, uid] = (words[1] ?? '').replace('lease=', '').split('/');
        const lease: Lease = {
          holder: holder as ServerId,
          incarnation: LIFE,
          untilMs: Number(until),
          uid: uid === undefined ? k : ballotParse(uid),
          released: false,
          claim: null,
        };
        if (verb === 'still-valid') return `${registerStillValid(register, lease, Number(words[2]))}`;
        const [next, reply] = registerWrite(register, k, lease);
        register = next;
        return reply.kind === 'ack-write'
          ? 'ack-write'
          : `nack-write standing=${ballotPrint(reply.largestBallot)}`;
      }
      case 'release':
        register = registerRelease(register, k);
        return `lease=${leasePrint(register.lease)}`;
      default:
        throw new Error(`Unknown command ${verb}`);
    }
  };
  return (commands) => commands.map(play).join('\n');
}

playConversations(fileURLToPath(new URL('../testdata/lease/register', import.meta.url)), start);
