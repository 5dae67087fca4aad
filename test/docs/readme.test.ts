import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SCHEMA_VERSION } from '../../catalog/schema.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { FOLDER_FORMAT } from '../../server/storage/folder-meta.ts';
import { INDEX_FORMAT } from '../../server/storage/index-schema.ts';
import { WIRE_VERSION } from '../../server/transport/frame.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const README = readFileSync(join(ROOT, 'README.md'), 'utf8');

/** Markdown documents of the project, by path from its root. */
function documents(): string[] {
  return execFileSync('git', ['ls-files', '*.md'], { cwd: ROOT, encoding: 'utf8' })
    .split('\n')
    .filter(Boolean);
}

test('every link between documents leads to a file, and to a heading in it', () => {
  const dead: string[] = [];
  for (const path of documents()) {
    const text = readFileSync(join(ROOT, path), 'utf8');
    for (const [, target] of text.matchAll(/\]\(([^)\s]+)[^)]*\)/g)) {
      if (target === undefined || /^[a-z]+:/.test(target)) continue;
      const [file = '', anchor] = target.split('#');
      const found = file === '' ? join(ROOT, path) : join(ROOT, dirname(path), file);
      if (!existsSync(found)) dead.push(`${path}: ${target}`);
      else if (anchor !== undefined && !anchorsOf(found).has(anchor)) dead.push(`${path}: ${target}`);
    }
  }
  assert.deepEqual(dead, []);
});

/** Headings of a document as browsers reach them on the site that hosts the code. */
function anchorsOf(path: string): Set<string> {
  const headings = readFileSync(path, 'utf8').matchAll(/^#+ (.+)$/gm);
  return new Set(
    [...headings].map(([, heading = '']) =>
      heading
        .toLowerCase()
        .replace(/[^\p{L}\p{N}\s_-]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

test('the README names only existing scripts and commands', () => {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const commands = [...README.matchAll(/npm run ([a-z:-]+)/g)].map(([, name]) => name ?? '');
  assert.ok(commands.includes('demo') && commands.includes('ok'), 'the two lines of a fresh clone');
  for (const name of commands) assert.ok(Object.hasOwn(scripts, name), `npm run ${name}`);
  const help = execFileSync(process.execPath, [join(ROOT, 'bin/leasehold.js'), '--help'], {
    encoding: 'utf8',
  });
  const known = new Set([...help.matchAll(/^ {2}([a-z]+)\b/gm)].map(([, name]) => name));
  for (const [, name] of README.matchAll(/npx leasehold ([a-z]+)/g))
    assert.ok(known.has(name), `leasehold ${name}`);
});

test('figures of speed are in the generated tables, except for those measured elsewhere', () => {
  const performance = readFileSync(join(ROOT, 'docs/performance.md'), 'utf8');
  const mounts = performance.slice(performance.indexOf('## Mounts'), performance.indexOf('### Small files'));
  const comparison = readFileSync(join(ROOT, 'docs/comparison.md'), 'utf8');
  const speed = /\d [MG]B\/s|\d files|times as|a second\)/;
  const elsewhere = /^\*\*Measured, not in one run with Leasehold\*\*|its README shows/;
  for (const text of [README, mounts, comparison]) {
    for (const paragraph of text.split('\n\n')) {
      if (!elsewhere.test(paragraph)) assert.doesNotMatch(paragraph, speed);
    }
  }
});

test('the table of versions has those of the code', () => {
  const text = readFileSync(join(ROOT, 'docs/operations.md'), 'utf8');
  const versions = {
    'between servers (wire)': WIRE_VERSION,
    'commands of the catalog': COMMANDS_VERSION,
    'data folder': FOLDER_FORMAT,
    'index of replicas': INDEX_FORMAT,
    catalog: SCHEMA_VERSION,
  };
  for (const [what, version] of Object.entries(versions)) {
    const [, written] =
      new RegExp(`^\\| ${what.replace(/[()]/g, '\\$&')} \\| (\\d+) \\|`, 'm').exec(text) ?? [];
    assert.equal(Number(written), version, what);
  }
});

test('each row of the table of authorities names an existing test', () => {
  const text = readFileSync(join(ROOT, 'docs/replication.md'), 'utf8');
  const section = text.slice(text.indexOf('## Ahead of the cluster'), text.indexOf('## Exactly once'));
  const rows = section
    .split('\n')
    .filter((line) => line.startsWith('| '))
    .slice(2);
  assert.ok(rows.length > 20, 'The table exists');
  for (const row of rows) {
    const cells = row.split(' | ');
    assert.equal(cells.length, 6, row);
    const tests = [...(cells[5] ?? '').matchAll(/`(test\/[^`]+)`/g)].map(([, path]) => path ?? '');
    assert.ok(tests.length > 0, row);
    for (const path of tests) assert.ok(existsSync(join(ROOT, path)), `${path} of: ${row}`);
  }
});
