import fs from 'node:fs';
import path from 'node:path';

/** Inside the data folder itself, which may be a disk of its own. */
const ASIDE = /^damaged-[1-9]\d*$/;

/** A rebuilt server finds the others by it, even if it was started with the address of a server that was removed. */
export const SERVERS_FILE = 'servers.json';

export function isAside(name: string): boolean {
  return ASIDE.test(name);
}

/**
 * Moves the contents of a data folder that is not in use into `damaged-1`, `damaged-2`, … inside it, so that the next
 * start creates an empty one with another storage id. META is moved last: after an interruption there is still a
 * damaged folder, not an empty one. @returns the path of the moved contents
 */
export function setAside(folder: string): string {
  const names = fs.readdirSync(folder).filter((name) => !isAside(name) && name !== 'lost+found');
  let number = 1;
  while (fs.existsSync(path.join(folder, `damaged-${number}`))) number++;
  const aside = path.join(folder, `damaged-${number}`);
  fs.mkdirSync(aside, { mode: 0o700 });
  const ordered = names.toSorted((a, b) => Number(a === 'META') - Number(b === 'META'));
  for (const name of ordered) fs.renameSync(path.join(folder, name), path.join(aside, name));
  if (names.includes(SERVERS_FILE))
    fs.copyFileSync(path.join(aside, SERVERS_FILE), path.join(folder, SERVERS_FILE));
  const fd = fs.openSync(folder, 'r');
  try {
    fs.fsyncSync(fd);
  } finally {
    fs.closeSync(fd);
  }
  return aside;
}
