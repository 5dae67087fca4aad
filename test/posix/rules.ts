import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type Outcome, Program, USERS, type UserName } from './program.ts';

/**
 * Rules of POSIX as a file has them: a `#` line states the rule, the lines below it are calls.
 *
 *     # a directory does not replace a file
 *     mkdir d
 *     create f
 *     bob rename d f -> EACCES
 *     rename d f -> ENOTDIR
 *     unlink f => .:mc
 *
 * `->` is followed by the value or the error; without it the call succeeds. `~>` is followed by an answer that the
 * call returns within a few seconds: it is repeated. `=>` is followed by paths with the times that the call changes
 * (m: modification, c: status change, -: neither; a: access, only compared where it is given); `old>new` if the call
 * moves the path. Calls are made by Alice unless they name another user; she owns the empty directory that each rule
 * has for itself. `bob@2` calls on the second mount, which is read-only for `rules/`. A line with TYPE stands for one
 * line for each type of inode, with NODIR for each but directories. `x*255` is a text of that length, `deep*4095/f` a
 * path of that length, `\xff` a byte, `_` an empty text. A rule with `(not over native: …)` in its title is skipped
 * there, for the given reason.
 */
export interface Rule {
  readonly page: string;
  readonly title: string;
  readonly notOver: readonly string[];
  readonly lines: readonly { readonly number: number; readonly text: string }[];
}

const TYPES = ['file', 'directory', 'fifo', 'socket', 'symlink', 'character', 'block'];

/** File systems on a disk take times from a clock that advances at most every 10 ms. */
const CLOCK_STEP_MS = 12;
/** Times of changes may be finer. Access times are of that clock, and on a busy machine it advances later. */
const CLOCK_STEP_MS_MAX = 10_000;
/** How long a mount may cache what other clients change, with time for a slow machine. */
const SOON_MS = 10_000;

/** @param name of the folder beside this file */
export function readRules(name: 'rules' | 'coherence'): Rule[] {
  const folder = fileURLToPath(new URL(name, import.meta.url));
  return readdirSync(folder)
    .filter((file) => file.endsWith('.txt'))
    .sort()
    .flatMap((file) => parseRules(basename(file, '.txt'), readFileSync(join(folder, file), 'utf8')));
}

function parseRules(page: string, text: string): Rule[] {
  const rules: {
    page: string;
    title: string;
    notOver: string[];
    lines: { number: number; text: string }[];
  }[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    if (line.startsWith('# ')) {
      const notOver = /\(not over ([^:]+):/.exec(line)?.[1]?.split(/,? (?:and )?/) ?? [];
      rules.push({ page, title: line.slice(2), notOver, lines: [] });
      continue;
    }
    const rule = rules.at(-1);
    if (rule === undefined) throw new Error(`${page}:${index + 1}: a call before the first rule`);
    for (const text of linesOf(line.trim())) rule.lines.push({ number: index + 1, text });
  }
  return rules;
}

function linesOf(line: string): string[] {
  const [, word] = /\b(TYPE|NODIR)\b/.exec(line) ?? [];
  if (word === undefined) return [line];
  return TYPES.filter((type) => word === 'TYPE' || type !== 'directory').map((type) =>
    line.replaceAll(word, type),
  );
}

/** One directory on one or two mounts, and a process for each user there. */
export class Ground {
  readonly #directories: readonly string[];
  readonly #programs = new Map<string, Program>();
  /** Counts the rules of all grounds, as several may be on one volume. */
  static #rules = 0;

  /** @param directories paths of one directory, owned by root */
  constructor(...directories: string[]) {
    this.#directories = directories;
  }

  program(user: UserName, mount = 1): Program {
    const key = `${user}@${mount}`;
    let program = this.#programs.get(key);
    if (program === undefined) {
      program = new Program(USERS[user]);
      this.#programs.set(key, program);
    }
    return program;
  }

  /** @throws Error that names the first line that does not hold */
  async play(rule: Rule): Promise<void> {
    Ground.#rules += 1;
    const name = `rule-${Ground.#rules}`;
    const root = this.program('root');
    const { uid, gid } = USERS.alice;
    const directory = join(this.#directories[0] as string, name);
    await root.value('mkdir', directory);
    await root.value('chown', directory, uid, gid);
    const entered = new Set<Program>();
    const enter = async (user: UserName, mount: number): Promise<Program> => {
      const program = this.program(user, mount);
      if (!entered.has(program))
        await program.value('chdir', join(this.#directories[mount - 1] as string, name));
      entered.add(program);
      return program;
    };
    try {
      for (const line of rule.lines) {
        const failure = await playLine(line.text, enter);
        if (failure !== null) throw new Error(`${rule.page}.txt:${line.number}: ${line.text}\n  ${failure}`);
      }
    } finally {
      for (const program of entered) await program.value('forget');
    }
  }

  async stop(): Promise<void> {
    for (const program of this.#programs.values()) await program.stop();
  }
}

/** @returns the difference from what the line says, or null */
async function playLine(
  text: string,
  enter: (user: UserName, mount: number) => Promise<Program>,
): Promise<string | null> {
  const [, order = '', kind = '', wanted = ''] = /^(.*?)(?: (->|=>|~>) ?(.*))?$/.exec(text) ?? [];
  const words = order.split(/\s+/);
  const [user, mount] = (words[0] ?? '').split('@') as [string, string?];
  const isNamed = user in USERS;
  if (isNamed) words.shift();
  const program = await enter((isNamed ? user : 'alice') as UserName, Number(mount ?? 1));
  const [call = '', ...values] = words.map(expand);
  if (kind === '=>') {
    const root = await enter('root', 1);
    return playTimes(root, wanted, () => program.call(call, ...values));
  }
  const deadlineMs = performance.now() + (kind === '~>' ? SOON_MS : 0);
  for (;;) {
    const failure = judge(kind, wanted, await program.call(call, ...values));
    if (failure === null || performance.now() >= deadlineMs) return failure;
    await delay(CLOCK_STEP_MS);
  }
}

/** @returns the difference from what is wanted, or null */
function judge(kind: string, wanted: string, { value, errno }: Outcome): string | null {
  if (kind === '') return errno === undefined ? null : `it fails with ${errno}`;
  const said = errno ?? value ?? '';
  return wanted.split(' | ').some((one) => said === expand(one === '' ? '_' : one))
    ? null
    : `it answers ${said}`;
}

async function playTimes(
  root: Program,
  wanted: string,
  call: () => Promise<Outcome>,
): Promise<string | null> {
  const watched = wanted.split(' ').map((each) => {
    const [, before = '', after = before, times = ''] = /^([^>:]+)(?:>([^:]+))?:([acm-]+)$/.exec(each) ?? [];
    return { before, after, times };
  });
  const timesOf = async (path: string): Promise<bigint[]> =>
    (await root.value('lstat', path, 'modified,changed,accessed')).split(' ').map(BigInt);
  const before: bigint[][] = [];
  for (const path of watched) before.push(await timesOf(path.before));
  await delay(CLOCK_STEP_MS);
  if (watched.some(({ times }) => times.includes('a'))) await clockPasses(root, before);
  const { errno } = await call();
  if (errno !== undefined) return `it fails with ${errno}`;
  for (const [index, path] of watched.entries()) {
    const then = before[index] as bigint[];
    const now = await timesOf(path.after);
    // Access times are compared only if the rule gives them.
    const watchedTimes = ['m', 'c', ...(path.times.includes('a') ? ['a'] : [])];
    const moved =
      watchedTimes.filter((_, time) => (now[time] as bigint) > (then[time] as bigint)).join('') || '-';
    const back = watchedTimes.some((_, time) => (now[time] as bigint) < (then[time] as bigint));
    if (back) return `a time of ${path.after} goes back`;
    if (moved !== path.times) return `of ${path.after} the times ${moved} change`;
  }
  return null;
}

/** Waits until the clock of file systems has passed each of the times. */
async function clockPasses(root: Program, times: readonly (readonly bigint[])[]): Promise<void> {
  const deadlineMs = performance.now() + CLOCK_STEP_MS_MAX;
  for (;;) {
    const clock = BigInt(await root.value('coarse-clock'));
    if (times.flat().every((one) => one < clock)) return;
    if (performance.now() > deadlineMs) throw new Error(`The clock of file systems stands still at ${clock}`);
    await delay(CLOCK_STEP_MS);
  }
}

function expand(word: string): string {
  if (word === '_') return '';
  const deep = /^deep\*(\d+)\/(.*)$/.exec(word);
  if (deep !== null) {
    const [, length, name = ''] = deep;
    const slashes = Number(length) - name.length;
    return `${'./'.repeat(Math.floor(slashes / 2))}${slashes % 2 === 1 ? '/' : ''}${name}`;
  }
  return word
    .replaceAll(/\\x(\w\w)(?:\*(\d+))?/g, (_, byte: string, count = '1') =>
      rawByte(byte).repeat(Number(count)),
    )
    .replaceAll(/([\w]|é)\*(\d+)/g, (_, text: string, count: string) => text.repeat(Number(count)));
}

/** As Python represents a byte that is no character in a path. */
function rawByte(hexadecimal: string): string {
  return String.fromCharCode(0xdc00 + Number.parseInt(hexadecimal, 16));
}
