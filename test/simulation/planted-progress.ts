/** Known bugs of what goes on over several requests: uploads in pieces, watchers, the first leader of a file; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const TUS = 'test/http/tus-progress.test.ts';
const DRAIN = 'test/cluster/drain.test.ts';
const JOIN = {
  file: 'test/cluster/join.test.ts',
  name: 'a join with other settings is refused by option and values, before the catalog registers the server',
};

export const PLANTED_PROGRESS: readonly Planted[] = [
  replica(
    '74a',
    'an upload is said to be as far as the catalog knows, which hears of it later',
    {
      file: 'server/http/tus-uploads.ts',
      find: 'return { file, note, offsetBytes: sizeBytes, lengthBytes: note.lengthBytes, since };',
      replace: 'return { file, note, offsetBytes: file.sizeBytes, lengthBytes: note.lengthBytes, since };',
    },
    { test: { file: TUS, name: 'an upload is as far as its pieces have come, and goes on from there only' } },
  ),
  replica(
    '74b',
    'whoever guesses the number of an upload goes on with it',
    {
      file: 'server/http/tus-uploads.ts',
      find: 'if (note.secret !== secret) throw missing;',
      replace: '',
    },
    {
      test: {
        file: TUS,
        name: 'an upload is gone on with by whoever was told its name, and not by its number',
      },
    },
  ),
  replica(
    'drain-none',
    'a server that ends cuts the requests that are under way',
    { file: 'server/server.ts', find: 'await drain.finish();', replace: '' },
    { test: { file: DRAIN, name: 'each server is ended and started again under load' } },
  ),
  replica(
    'drain-open',
    'clients are not told that their connections end',
    {
      file: 'server/http/drain.ts',
      find: 'if (this.#beganMs !== null) response.shouldKeepAlive = false;',
      replace: '',
    },
    { test: { file: DRAIN, name: 'each server is ended and started again under load' } },
  ),
  replica(
    'end-twice',
    'a second signal ends a server before it has ended in good order',
    {
      file: 'server/orderly-end.ts',
      find: 'if (isEnding) return;',
      replace: 'if (isEnding) process.exit(1);',
    },
    { test: { file: DRAIN, name: 'one orderly end, however often it is asked for' } },
  ),
  replica(
    'launcher-gone',
    'a server does not notice that its launcher has gone',
    {
      file: 'bin/leasehold.js',
      find: "  pipe.on('close', () => process.kill(process.pid, 'SIGTERM'));\n",
      replace: '',
    },
    {
      test: { file: 'test/client/launcher.test.ts', name: 'ends in good order when its launcher is killed' },
    },
  ),
  replica(
    'join-registered',
    'a server that cannot work with a cluster is registered before it is refused',
    { file: 'server/membership/join.ts', find: 'parts.accepts(before);', replace: '' },
    { test: JOIN },
  ),
  replica(
    'join-unnamed',
    'a refused join does not say which option has another value',
    {
      file: 'server/membership/known-servers.ts',
      find: '      paramsHash,\n      settings,\n      bootstrap: {',
      replace: '      paramsHash,\n      bootstrap: {',
    },
    { test: JOIN },
  ),
  replica(
    'watch-relayed',
    'how a lease ended is judged by when its beginning was heard of, and not by who knows',
    {
      file: 'wire/lease-changes.ts',
      find: 'return leaseEvent(said ?? seen,',
      replace: 'return leaseEvent(seen ?? said,',
    },
    {
      test: {
        file: 'test/named/changes.test.ts',
        name: 'how a lease ended is what somebody nearer to it said, however late its beginning was told',
      },
    },
  ),
  replica(
    '74c',
    'a watcher is not told that changes before are not known any more',
    {
      file: 'server/storage/catalog-changes.ts',
      find: 'if (after < this.#from || after > this.#last) return null;',
      replace: 'if (after > this.#last) return null;',
    },
    {
      test: {
        file: 'test/storage/catalog-changes.test.ts',
        name: 'what came behind an operation is told, and what is not known is not guessed',
      },
    },
  ),
  replica(
    '74d',
    'a watcher is told nothing where another state took the place of the catalog',
    {
      file: 'server/storage/catalog-changes.ts',
      find: 'this.#from = seq;\n    this.#last = seq;\n    for',
      replace: 'this.#last = seq;\n    for',
    },
    {
      test: {
        file: 'test/storage/catalog-changes.test.ts',
        name: 'what came behind an operation is told, and what is not known is not guessed',
      },
    },
  ),
  replica(
    '74e',
    'the lease of a file that was not made after all is kept',
    {
      file: 'server/file/file-service.ts',
      find: 'lease.release(file);\n    lease.close(file);',
      replace: '',
    },
    {
      test: {
        file: 'test/server/made-files.test.ts',
        name: 'the lease of a file that was not made after all is given back',
      },
    },
  ),
  replica(
    '74f',
    'a replica of the catalog answers for a file that was made long ago',
    {
      file: 'server/catalog/just-made.ts',
      find: 'attributes.live && ageNs < JUST_NS',
      replace: 'attributes.live',
    },
    {
      test: {
        file: 'test/server/just-made.test.ts',
        name: 'a replica of the catalog tells of a file that was made a moment ago, and of no other',
      },
    },
  ),
];
