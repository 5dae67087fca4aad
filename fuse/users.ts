import { readFileSync } from 'node:fs';
import { whoami } from '../client/whoami.ts';

/** Names are read again after so long, in milliseconds. */
const KNOWN_MS = 60_000;

/** Does not change while the process runs. */
const MOUNT = whoami('mount');

let names = new Map<number, string>();
let readMs = -Infinity;

/**
 * @param uid of the program's user, where that is known
 * @returns who takes a name away, as it is told to others
 */
export function removerText(uid?: number): string {
  return uid === undefined ? MOUNT : `${MOUNT}, by ${userText(uid)}`;
}

/** @returns a user as people know it: with its name, where /etc/passwd of this machine has it */
export function userText(uid: number): string {
  if (performance.now() - readMs > KNOWN_MS) {
    readMs = performance.now();
    names = passwdNames();
  }
  const name = names.get(uid);
  return name === undefined ? `uid ${uid}` : `${name} (uid ${uid})`;
}

function passwdNames(): Map<number, string> {
  let text: string;
  try {
    text = readFileSync('/etc/passwd', 'utf8');
  } catch {
    // Then users have no names here: what is told is the number.
    return new Map();
  }
  const rows = text.split('\n').map((line) => line.split(':'));
  return new Map(rows.flatMap(([name = '', , uid = '']) => (/^\d+$/.test(uid) ? [[Number(uid), name]] : [])));
}
