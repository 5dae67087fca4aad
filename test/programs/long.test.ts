import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { runOk } from '../cluster/cluster-mount.ts';
import { isLong } from '../long.ts';
import { isMissing, type OnMount, onMounts, PROGRAM_MS_MAX, skip } from './on-mount.ts';

const SOURCES = 60;

if (!isLong)
  test('long programs on a mount', { skip: 'They take minutes: npm run programs' }, () => undefined);
else if (skip === false) await define();
else test('long programs on a mount of a real cluster', { skip }, () => undefined);

async function define(): Promise<void> {
  const mounts = await onMounts();
  const missing = await Promise.all(['make', 'cc', 'rsync', 'vim', 'fio', 'dbench'].map(isMissing));
  for (const on of mounts) defineOn(on, missing);
}

function defineOn({ transport, mount, local, env }: OnMount, missing: readonly (string | false)[]): void {
  const at = { env, timeoutMs: PROGRAM_MS_MAX };
  const [
    noMake = false,
    noCompiler = false,
    noRsync = false,
    noVim = false,
    noFio = false,
    noDbench = false,
  ] = missing;

  test(`${transport}: make -j4 of ${SOURCES} C files, twice`, {
    skip: noMake || noCompiler || false,
  }, async (t) => {
    const project = mount.path('project-c');
    mkdirSync(project);
    writeProject(project);
    const { tookMs } = await runOk('make', ['-C', project, '-j4'], at);
    t.diagnostic(`make took ${(tookMs / 1000).toFixed(1)} s`);
    assert.equal((await runOk(join(project, 'sum'), [], at)).text, `${(SOURCES * (SOURCES - 1)) / 2}\n`);
    const again = await runOk('make', ['-C', project, '-j4'], at);
    assert.match(
      again.text,
      /is up to date|Nothing to be done/,
      'Times of files do not change by themselves',
    );
    await runOk('sh', ['-c', 'echo "int part_7(void) { return 1007; }" > "$0"/part_7.c', project], at);
    const changed = await runOk('make', ['-C', project, '-j4'], at);
    assert.equal(changed.text.match(/-c part_/g)?.length, 1, changed.text);
    assert.equal(
      (await runOk(join(project, 'sum'), [], at)).text,
      `${(SOURCES * (SOURCES - 1)) / 2 + 1000}\n`,
    );
  });

  test(`${transport}: rsync there and back, and once more for what has changed`, {
    skip: noRsync,
  }, async () => {
    const source = join(local, 'source');
    mkdirSync(source);
    for (let number = 0; number < 200; number++) {
      writeFileSync(join(source, `f${number}`), `${number}\n`.repeat(1 + number * 13));
    }
    const rsync = (...words: string[]) =>
      runOk('rsync', ['-a', '--checksum', '--itemize-changes', ...words], at);
    await rsync(`${source}/`, mount.path('rsync/'));
    assert.equal((await rsync(`${source}/`, mount.path('rsync/'))).text, '', 'Nothing is left to copy');
    writeFileSync(join(source, 'f7'), 'changed');
    assert.match((await rsync(`${source}/`, mount.path('rsync/'))).text, /^>f\S+ f7\n$/);
    const back = join(local, 'rsync-back');
    await rsync(mount.path('rsync/'), `${back}/`);
    await runOk('diff', ['--recursive', source, back], at);
  });

  test(`${transport}: vim saves by a backup and a rename, and keeps the mode`, { skip: noVim }, async () => {
    const file = mount.path('edited.txt');
    writeFileSync(file, 'one\ntwo\nthree\n', { mode: 0o640 });
    for (const copy of ['no', 'yes', 'auto']) {
      const settings = `set backup writebackup backupcopy=${copy} backupdir=. backupskip= fsync`;
      const words = [
        '-u',
        'NONE',
        '-i',
        'NONE',
        '-E',
        '-s',
        '-c',
        settings,
        '-c',
        '%s/$/!/',
        '-c',
        'wq',
        file,
      ];
      await runOk('vim', words, { ...at, cwd: mount.directory });
    }
    assert.equal(readFileSync(file, 'utf8'), 'one!!!\ntwo!!!\nthree!!!\n');
    assert.equal(readFileSync(`${file}~`, 'utf8'), 'one!!\ntwo!!\nthree!!\n');
    assert.equal((await runOk('stat', ['--format=%a', file], at)).text, '640\n');
    assert.deepEqual(
      readdirSync(mount.directory).filter((name) => /\.sw.$|^4913$/.test(name)),
      [],
    );
  });

  test(`${transport}: fio writes in any order and finds every block again`, { skip: noFio }, async () => {
    const folder = mount.path('fio');
    mkdirSync(folder);
    for (const [name, ...more] of [
      ['sequential', '--rw=write', '--bs=128k', '--size=32m'],
      ['random', '--rw=randwrite', '--bs=4k', '--size=4m', '--fsync=64'],
      ['mixed', '--rw=randrw', '--bsrange=1k-64k', '--size=4m'],
      ['jobs', '--rw=randwrite', '--bs=16k', '--size=2m', '--numjobs=4'],
    ] as const) {
      const words = [
        `--name=${name}`,
        `--directory=${folder}`,
        '--verify=crc32c',
        '--verify_fatal=1',
        ...more,
      ];
      await runOk('fio', ['--ioengine=psync', '--end_fsync=1', '--group_reporting', ...words], at);
    }
  });

  test(`${transport}: dbench with 10 clients`, { skip: noDbench }, async (t) => {
    const folder = mount.path('dbench');
    mkdirSync(folder);
    const { text } = await runOk('dbench', ['-D', folder, '-t', '30', '10'], at);
    const throughput = /^Throughput ([\d.]+) MB\/sec.*$/m.exec(text);
    assert.ok(throughput !== null && Number(throughput[1]) > 0, text.slice(-2_000));
    assert.doesNotMatch(text, /^\[\d+\] .*(?:failed|ERROR)/m);
    t.diagnostic(throughput[0]);
  });
}

/** A program of many files that each add a number, with an ordinary makefile. */
function writeProject(folder: string): void {
  const parts = Array.from({ length: SOURCES }, (_, number) => `part_${number}`);
  writeFileSync(join(folder, 'parts.h'), parts.map((part) => `int ${part}(void);\n`).join(''));
  for (const [number, part] of parts.entries()) {
    writeFileSync(join(folder, `${part}.c`), `#include "parts.h"\nint ${part}(void) { return ${number}; }\n`);
  }
  const sum = parts.map((part) => `${part}()`).join(' + ');
  const main = `#include <stdio.h>\n#include "parts.h"\nint main(void) { printf("%d\\n", ${sum}); return 0; }\n`;
  writeFileSync(join(folder, 'main.c'), main);
  const objects = ['main', ...parts].map((part) => `${part}.o`).join(' ');
  writeFileSync(
    join(folder, 'Makefile'),
    `sum: ${objects}\n\tcc -o $@ ${objects}\n%.o: %.c parts.h\n\tcc -O1 -c $< -o $@\n`,
  );
}
