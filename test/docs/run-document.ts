/**
 * Runs the blocks of a document as a reader would, one after the other: `node run-document.ts FILE`. It is started in
 * its own namespaces (test/docs/documents.test.ts), where no other process uses the ports, folders and processes that
 * documents name.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { volumeMounts } from '../../client/mounts/mount-table.ts';
import { LAUNCHER } from '../launcher.ts';
import { isLong } from '../long.ts';
import { type Block, blocksOf, notPrinted } from './blocks.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const BLOCK_MS_MAX = 180_000;
/** Blocks that another test runs in a shorter form: here they run only in the long form. */
const RUN_ELSEWHERE: Readonly<Record<string, string>> = { 'npm run demo': 'test/client/dev.test.ts' };
const STOP_MS_MAX = 60_000;

interface Running {
  readonly child: ChildProcess;
  readonly ended: Promise<unknown>;
  printed(): string;
}

const [path] = process.argv.slice(2);
if (path === undefined) throw new Error('Which document?');
await leaveMounts();
const folder = prepare();
try {
  await runDocument(readFileSync(join(ROOT, path), 'utf8'), folder);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
// Servers that a document leaves in the background end with this namespace.
process.exit(0);

/**
 * A namespace begins with a copy of every mount, and a mount that is removed elsewhere keeps running, with its process,
 * while there is a copy.
 */
async function leaveMounts(): Promise<void> {
  for (const { directory } of await volumeMounts()) {
    const { status, stderr } = spawnSync('umount', ['-i', '-c', '-l', directory], { encoding: 'utf8' });
    if (status === 0) continue;
    // A mount disappears here, too, when its directory is removed elsewhere, as at the end of another test.
    if ((await volumeMounts()).some((left) => left.directory === directory)) throw new Error(stderr);
  }
}

/** @returns a folder that looks like a clone; files that a document creates beside the project's stay in it */
function prepare(): string {
  execFileSync('ip', ['link', 'set', 'lo', 'up']);
  for (const own of ['/mnt', '/var/lib']) execFileSync('mount', ['-t', 'tmpfs', 'none', own]);
  const made = mkdtempSync(join(tmpdir(), 'leasehold-document-'));
  for (const name of readdirSync(ROOT)) symlinkSync(join(ROOT, name), join(made, name));
  // As after `npm install -g`.
  mkdirSync(join(made, '.installed'));
  symlinkSync(LAUNCHER, join(made, '.installed/leasehold'));
  // Without it the launcher starts itself again, with the Node of the package.
  symlinkSync(process.execPath, join(made, '.installed/node'));
  // npm takes five times as long to find the program as the program runs; `.ci/run` starts one with the real npx.
  const npx =
    '[ "$1" = leasehold ] && shift && exec leasehold "$@"\necho "No test of documents runs npx $1" >&2\nexit 1\n';
  writeFileSync(join(made, '.installed/npx'), `#!/bin/sh\n${npx}`, { mode: 0o755 });
  return made;
}

async function runDocument(document: string, cwd: string): Promise<void> {
  const background: Running[] = [];
  let printed = '';
  for (const block of blocksOf(document)) {
    switch (block.proof.kind) {
      case 'background':
        background.push(await begin(block, block.proof, cwd));
        break;
      case 'run':
        if (!isLong && block.code in RUN_ELSEWHERE) break;
        if (block.proof.afterStop) await stop(background);
        printed = await run(block, block.proof.exitCode, cwd);
        break;
      case 'output': {
        const missing = notPrinted(block.code, printed);
        if (missing !== null) fail(block, `does not print: ${missing}`, printed);
        break;
      }
      case 'run-by':
        break;
    }
  }
  await stop(background);
}

function start(block: Block, cwd: string): Running {
  // A reader has none of the variables that name a cluster of the user who runs the tests.
  const others = Object.entries(process.env).filter(([name]) => !name.startsWith('LEASEHOLD_'));
  const env = { ...Object.fromEntries(others), PATH: `${join(cwd, '.installed')}:${process.env.PATH}` };
  const child = spawn('bash', ['-euo', 'pipefail', '-c', block.code], {
    cwd,
    env,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
    });
  }
  // Not `close`: processes that a block leaves in the background have its output open.
  return { child, ended: once(child, 'exit'), printed: () => text };
}

async function run(block: Block, exitCode: number, cwd: string): Promise<string> {
  const running = start(block, cwd);
  const timer = setTimeout(() => fail(block, 'takes too long', running.printed()), BLOCK_MS_MAX);
  await running.ended;
  clearTimeout(timer);
  // Its last output may be on its way.
  await new Promise((resolve) => setImmediate(resolve));
  const { exitCode: code, signalCode } = running.child;
  console.log(`line ${block.line}: ${block.code}\n${running.printed()}`);
  if (code !== exitCode) fail(block, `ended with ${signalCode ?? code}`, running.printed());
  return running.printed();
}

function begin(
  block: Block,
  { until, runBy }: Extract<Block['proof'], { kind: 'background' }>,
  cwd: string,
): Promise<Running> {
  // The installation is already done, and there is no network here.
  const code =
    runBy === undefined ? block.code : block.code.slice(block.code.lastIndexOf(` ${runBy.from} `) + 1);
  const running = start({ ...block, code }, cwd);
  return new Promise((resolve) => {
    const timer = setTimeout(() => fail(block, `does not print: ${until}`, running.printed()), BLOCK_MS_MAX);
    running.child.stdout?.on('data', () => {
      if (!running.printed().includes(until)) return;
      clearTimeout(timer);
      resolve(running);
    });
  });
}

/** As Ctrl-C does it: to the whole group of the terminal. */
async function stop(background: Running[]): Promise<void> {
  for (const { child, ended } of background.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) continue;
    process.kill(-child.pid, 'SIGINT');
    const timer = setTimeout(() => process.exit(1), STOP_MS_MAX);
    await ended;
    clearTimeout(timer);
  }
}

function fail(block: Block, what: string, printed: string): never {
  console.error(`The block in line ${block.line} ${what}\n${block.code}\n--\n${printed}`);
  process.exit(1);
}
