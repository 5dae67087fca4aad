import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import {
  cacheModeOf,
  flagOptions,
  kernelOptions,
  MOUNT_OPTIONS,
  optionText,
  parseMountOptions,
  parseMountSource,
} from '../../client/mounts/mount-options.ts';
import { CommandFailure } from '../../client/terminal/failure.ts';

const DOCUMENT = readFileSync(new URL('../../docs/mount.md', import.meta.url), 'utf8');

function refused(...texts: string[]): CommandFailure {
  try {
    parseMountOptions(texts);
  } catch (error) {
    assert.ok(error instanceof CommandFailure);
    assert.equal(error.exit, 2);
    return error;
  }
  throw new Error(`${texts.join(' ')} was taken`);
}

test('a line of fstab is understood', () => {
  const settings = parseMountOptions([
    'servers=a;b:80;http\\://c:1,ro,_netdev,nofail,x-systemd.automount,x-gvfs-name=x,uid=1000,gid=7,umask=022,noexec',
    'op_timeout=5s,servers="d,e",dmask=0',
  ]);
  assert.deepEqual(settings.servers, [
    'http://a:7401',
    'http://b:80',
    'http://c:1',
    'http://d:7401',
    'http://e:7401',
  ]);
  assert.equal(settings.readOnly, true);
  assert.deepEqual(
    [settings.uid, settings.gid, settings.fileMask, settings.directoryMask],
    [1000, 7, 0o22, 0],
  );
  assert.equal(settings.operationTimeoutMs, 5_000);
  assert.deepEqual(kernelOptions(settings, false), ['ro', 'nosuid', 'nodev', 'relatime', 'noexec']);
  assert.deepEqual(kernelOptions(parseMountOptions([]), true), [
    'rw',
    'nosuid',
    'nodev',
    'relatime',
    'allow_other',
  ]);
});

test('the last of two contradicting options counts', () => {
  assert.equal(parseMountOptions(['ro,rw']).readOnly, false);
  assert.equal(parseMountOptions(['rw', 'ro']).readOnly, true);
  assert.deepEqual(kernelOptions(parseMountOptions(['suid,dev,exec,noexec']), false), [
    'rw',
    'suid',
    'dev',
    'relatime',
    'noexec',
  ]);
});

test('the time of access updates is set as for mount(8), and the table of mounts shows it', () => {
  const told = (...options: string[]) =>
    kernelOptions(parseMountOptions(options), false).filter((word) => word.endsWith('atime'));
  assert.deepEqual(told(), ['relatime']);
  assert.deepEqual(told('noatime'), ['noatime']);
  assert.deepEqual(told('strictatime,nodiratime'), ['strictatime', 'nodiratime']);
  assert.deepEqual(told('nodiratime,diratime,lazytime'), ['relatime']);
  for (const word of ['atime', 'relatime', 'norelatime', 'nostrictatime'])
    assert.deepEqual(told('noatime,strictatime', word), ['relatime'], word);
});

test('an unknown option is named, together with the most similar one', () => {
  const failure = refused('ro,serverz=a');
  assert.match(failure.message, /"serverz": there is no such option/);
  assert.match(failure.hint, /"servers"/);
  assert.match(refused('op-timeot=3s').hint, /"op_timeout"/);
  assert.match(refused('allowother').hint, /"allow_other"/);
  assert.match(refused('cahce=strict').hint, /"cache"/, 'Two letters are swapped');
  assert.match(refused('umaks=022').hint, /"umask"/);
  assert.doesNotMatch(refused('zzzzzzzzzzzz').hint, /did you mean/);
  assert.match(refused('remount,ro').hint, /unmount/);
  assert.match(refused('rw,user_id=0,remount').hint, /unmount/, "With the kernel's spelling");
  assert.equal(parseMountOptions(['serverz=a,ro'], true).readOnly, true, 'unless it is to be ignored');
});

test('values are checked', () => {
  assert.match(refused('uid=me').message, /"uid": "me" is not the number/);
  assert.match(refused('uid=4294967295').message, /not the number/);
  assert.match(refused('umask=8').message, /octal/);
  assert.match(refused('op_timeout=1').message, /duration of 100 ms or more/);
  assert.match(refused('op_timeout=5000').message, /such as 20s/, 'without a unit');
  assert.match(refused('cache=ttl:1').message, /"1" is not a duration such as 1s or 500ms, as in ttl:1s/);
  assert.deepEqual(parseMountOptions(['cache=ttl:1.5s']).cache, { kind: 'ttl', ageMs: 1_500 });
  assert.deepEqual(parseMountOptions(['cache=ttl:0']).cache, { kind: 'strict' });
  for (const number of ['0', '10000', '0:5'])
    assert.match(refused(`device_number=${number}`).message, /not a number from 1 to 9999/);
  assert.equal(parseMountOptions(['device_number=1001']).deviceNumber, 1001);
  assert.match(refused('uid').message, /needs a value, as in uid=NUMBER/);
  assert.match(refused('ro=1').message, /takes no value/);
  assert.match(refused('virtual_xattrs=some').message, /not auto, listed or hidden/);
  for (const name of ['virtual_xattrs', 'facts'])
    assert.equal(parseMountOptions([`${name}=listed`]).virtualXattrs, 'listed', name);
});

test('a mount is coherent by itself if the kernel drops recalled entries', () => {
  for (const options of [[], ['cache=auto'], ['cache=strict', 'cache=auto']]) {
    const { cache } = parseMountOptions(options);
    assert.deepEqual(cacheModeOf(cache, true), { kind: 'leases' });
    assert.deepEqual(cacheModeOf(cache, false), { kind: 'ttl', ageMs: 1_000 });
  }
  const asked = parseMountOptions(['cache=ttl:2s']).cache;
  assert.deepEqual(cacheModeOf(asked, true), asked);
});

test("a value keeps its separators on the way to the mount's process", () => {
  const text = optionText('fsname', 'a,b\\c"d');
  assert.equal(parseMountOptions([text, 'ro']).source, 'a,b\\c"d');
  assert.deepEqual(flagOptions({ 'op-timeout': '3s', 'no-xattr': true, 'log-level': undefined }), [
    'op_timeout=3s',
    'noxattr',
  ]);
});

test('a volume, or a directory of one, can be mounted', () => {
  assert.deepEqual(parseMountSource('main'), { volume: 'main', path: '/' });
  assert.deepEqual(parseMountSource('main:'), { volume: 'main', path: '/' });
  assert.deepEqual(parseMountSource('main:/'), { volume: 'main', path: '/' });
  assert.deepEqual(parseMountSource('main:/a/b/'), { volume: 'main', path: '/a/b' });
  assert.throws(() => parseMountSource('/dev/sda1'), /VOLUME:\/directory/);
  assert.throws(() => parseMountSource('main:/../x'), /lead out/);
});

test('docs/mount.md lists exactly the options of the table', () => {
  const section = DOCUMENT.slice(DOCUMENT.indexOf('## Options'), DOCUMENT.indexOf('## With mount and fstab'));
  const rows = [...section.matchAll(/^\| `([^`]+)` \| (.+) \|$/gm)].map(
    ([, term, effect]) => `${term}: ${effect}`,
  );
  const without = /Accepted, and without effect here[^:]*: (.*)\./s.exec(section)?.[1] ?? '';
  const accepted = [...without.matchAll(/`([^`]+)`/g)].map(([, name]) => name as string);
  const terms = MOUNT_OPTIONS.filter(({ name }) => !accepted.includes(name)).map(
    ({ name, valueForm: value, effect }) =>
      `${value === null ? name : `${name}=${value.replaceAll('|', '\\|')}`}: ${effect}`,
  );
  assert.deepEqual(rows, terms);
  const names = MOUNT_OPTIONS.map(({ name }) => name);
  assert.deepEqual(
    accepted.filter((name) => !names.includes(name)),
    [],
  );
});
