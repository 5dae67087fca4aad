import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { buildProgram } from '../../client/main.ts';
import { completionScript, SHELLS, type Shell } from '../../client/reference/completion.ts';
import { manualText } from '../../client/reference/manual.ts';
import { commandsOf, programText } from '../../client/reference/program-tree.ts';
import { OPTIONS } from '../../server/config/config-options.ts';
import { LAUNCHER } from '../cluster/real-cluster.ts';

/**
 * Goal: shells and the manual know exactly the existing commands, and each shell accepts its script.
 * Method: the real shells, if they are installed, complete command lines.
 */
const run = promisify(execFile);
const tree = programText(buildProgram(), OPTIONS);

async function missing(program: string): Promise<string | false> {
  return run(program, ['--version']).then(
    () => false,
    () => `${program} is not installed`,
  );
}

/** How each shell completes the last of `words`. One answer a line. */
const ASK: Readonly<Record<Shell, (script: string, words: readonly string[]) => readonly string[]>> = {
  bash: (script, words) => [
    '-c',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: bash puts it in
    'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _leasehold; printf "%s\\n" "${COMPREPLY[@]}"',
    script,
    ...words,
  ],
  zsh: (script, words) => [
    '-f',
    '-c',
    // The parts of zsh's completion that only work in its editor, as far as the script uses them.
    // biome-ignore lint/suspicious/noTemplateCurlyInString: zsh puts it in
    '_describe() { print -rl -- ${(@P)2} } ; _files() { print -r -- FILES }; compadd() { shift; print -rl -- "$@" }; ' +
      'script=$1; shift; words=("$@"); CURRENT=$#; source $script',
    'zsh',
    script,
    ...words,
  ],
  fish: (script, words) => ['-c', 'source $argv[1]; complete -C "$argv[2]"', script, words.join(' ')],
};

const CASES: readonly {
  readonly words: string;
  readonly includes: readonly string[];
  readonly excludes: readonly string[];
}[] = [
  { words: 'leasehold vol', includes: ['volume'], excludes: ['create', '--replicas'] },
  { words: 'leasehold volume cr', includes: ['create'], excludes: ['volume'] },
  { words: 'leasehold volume create --pol', includes: ['--policy'], excludes: ['create'] },
  {
    words: 'leasehold volume create --policy ',
    includes: ['quorum', 'all', 'read-only'],
    excludes: ['--replicas', 'create'],
  },
  { words: 'leasehold server --clo', includes: ['--clock-skew'], excludes: [] },
  { words: 'leasehold completion f', includes: ['fish'], excludes: ['volume'] },
];

for (const shell of SHELLS) {
  const skip = await missing(shell);
  describe(`completion in ${shell}`, { skip }, () => {
    let folder = '';
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), 'leasehold-completion-'));
      await writeFile(join(folder, 'script'), completionScript(shell, tree));
    });
    after(() => rm(folder, { recursive: true }));

    test('the script is one of this shell', async () => {
      await run(shell, ['-n', join(folder, 'script')]);
    });

    for (const { words, includes, excludes } of CASES) {
      test(`after "${words}"`, async () => {
        const { stdout, stderr } = await run(shell, [
          ...ASK[shell](join(folder, 'script'), words.split(' ')),
        ]);
        assert.equal(stderr, '');
        const begun = words.split(' ').at(-1) ?? '';
        // zsh and fish print a description after each word; zsh leaves the choice of matching ones to its editor.
        const found = stdout.split('\n').map((line) => line.split(/[\t:]/)[0] ?? '');
        const fitting = found.filter((word) => word.startsWith(begun));
        for (const word of includes) assert.ok(fitting.includes(word), `${word} in ${fitting.join(' ')}`);
        for (const word of excludes)
          assert.ok(!fitting.includes(word), `${word} not in ${fitting.join(' ')}`);
      });
    }
  });
}

test('the manual has every command and option', () => {
  const manual = manualText(tree, { version: '9.8.7', exitCodes: [[0, 'ok']] });
  const plain = manual.replaceAll('\\-', '-').replaceAll(/\\f[BIR]/g, '');
  for (const { path, options, commands } of commandsOf(tree).slice(1)) {
    if (commands.length === 0) assert.ok(plain.includes(`.SS "${path}`), path);
    for (const { names } of options) assert.ok(plain.includes(names.join(', ')), `${path} ${names}`);
  }
  for (const { name } of OPTIONS) assert.match(plain, new RegExp(`^--${name}\\b`, 'm'));
  assert.match(plain, /leasehold 9\.8\.7/);
  for (const line of manual.split('\n'))
    assert.match(line, /^(?:\.(?:TH|SH|SS|TP|B|I)\b|[^.']|\\&|$)/, `No request of man(7): ${line}`);
});

test('groff reports no fault of the manual', { skip: await missing('groff') }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-manual-'));
  t.after(() => rm(folder, { recursive: true }));
  const { stdout: manual } = await run(process.execPath, [LAUNCHER, 'man']);
  await writeFile(join(folder, 'leasehold.1'), manual);
  const { stdout, stderr } = await run('groff', [
    '-ww',
    '-man',
    '-Tutf8',
    '-P-cbou',
    join(folder, 'leasehold.1'),
  ]);
  assert.equal(stderr, '');
  assert.match(stdout, /leasehold volume create NAME/);
  assert.match(stdout, /--clock-skew TIME/);
});

test('an unknown shell is wrong usage', async () => {
  await assert.rejects(run(process.execPath, [LAUNCHER, 'completion', 'tcsh']), {
    code: 2,
    stderr: /bash, zsh, fish/,
  });
});
