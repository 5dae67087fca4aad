import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodePath, looksRemote, parseRemotePath } from '../../client/cluster/remote-path.ts';

const GOOD: readonly (readonly [text: string, volume: string, path: string, directory: boolean])[] = [
  ['main:/', 'main', '/', true],
  ['main:/a', 'main', '/a', false],
  ['main:/a/b c/#%ü', 'main', '/a/b c/#%ü', false],
  ['main:/a/', 'main', '/a', true],
  ['main://a//b/./c', 'main', '/a/b/c', false],
  ['main:/a/.', 'main', '/a', true],
  ['my.vol-1:/x:y', 'my.vol-1', '/x:y', false],
  ['main:/...', 'main', '/...', false],
];

for (const [text, volume, path, directory] of GOOD) {
  test(`"${text}" is ${path} of ${volume}`, () => {
    assert.deepEqual(parseRemotePath(text), { volume, path, directory });
  });
}

const BAD: readonly (readonly [text: string, why: RegExp])[] = [
  ['', /a volume and a colon come first/],
  ['main', /a volume and a colon come first/],
  ['/main/a', /a volume and a colon come first/],
  [':/a', /the name of the volume is missing/],
  ['main:', /the path begins with "\/"/],
  ['main:a', /as in main:\/a/],
  ['Main:/a', /"Main" cannot be a volume/],
  ['a/b:/c', /cannot be a volume/],
  ['main:/../etc', /lead out of the volume/],
  ['main:/a/../b', /lead out of the volume/],
  ['main:/a\0b', /NUL/],
];

for (const [text, why] of BAD) {
  test(`"${text}" is refused`, () => {
    assert.throws(() => parseRemotePath(text), { code: 'bad-request', message: why });
  });
}

test('remote and local paths are distinguished', () => {
  assert.ok(looksRemote('main:/a'));
  assert.ok(!looksRemote('./main:/a'));
  assert.ok(!looksRemote('/a'));
  assert.ok(!looksRemote('a:b'));
});

test('paths are escaped for URLs segment by segment', () => {
  assert.equal(encodePath('/a b/#%/ü?'), '/a%20b/%23%25/%C3%BC%3F');
  assert.equal(encodePath('/'), '/');
});
