/** Known bugs of what is remembered of requests so that none is carried out twice; see `planted.ts`. */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const CATALOG = 'test/catalog/sessions.test.ts';
const HTTP = 'test/http/exactly-once.test.ts';

export const PLANTED_SESSIONS: readonly Planted[] = [
  replica(
    'session-forgotten',
    'a request of a session that was forgotten is taken for the first of a new one',
    {
      file: 'catalog/sessions.ts',
      find: '(forgottenSeq > 0 && id.since <= forgottenSeq) || id.since >= seq',
      replace: 'id.since >= seq',
    },
    { test: { file: CATALOG, name: 'a command is not repeated after its session was forgotten' } },
  ),
  replica(
    'session-to-come',
    'a session may name a beginning that is still to come',
    {
      file: 'catalog/sessions.ts',
      find: ' || id.since >= seq',
      replace: '',
    },
    {
      test: {
        file: CATALOG,
        name: 'a session that began after the batch that it is to be in proves nothing',
      },
    },
  ),
  replica(
    'session-of-key',
    'a request with a key takes the place of a session',
    {
      file: 'catalog/sessions.ts',
      find: 'if (fenced && id.since === null) {',
      replace: 'if (fenced && id.since === -1) {',
    },
    {
      test: {
        file: CATALOG,
        name: 'requests with an Idempotency-Key do not take the place of sessions, nor of each other',
      },
    },
  ),
  replica(
    'session-no-place',
    'there are as many keys as anybody sends',
    {
      file: 'catalog/sessions.ts',
      find: 'if (count < TIMED_SESSIONS_MAX ||',
      replace: 'if (count >= 0 ||',
    },
    {
      test: {
        file: CATALOG,
        name: 'where there is no place for a session that is remembered for a time, a new one is refused',
      },
    },
  ),
  replica(
    'session-kinds',
    'sessions are of two kinds while a member of the catalog knows one',
    {
      file: 'catalog/batch.ts',
      find: 'if (!isKnown && requests.every(',
      replace: 'if (isKnown && requests.every(',
    },
    {
      test: {
        file: CATALOG,
        name: 'sessions are of one kind while a member of an earlier release is there, and of two for ever after',
      },
    },
  ),
  replica(
    'session-unnamed',
    'a client does not name when its session began',
    {
      file: 'client/cluster-client.ts',
      find: 'const fence = since === undefined ? {} : { since };',
      replace: 'const fence = {};',
    },
    {
      test: {
        file: HTTP,
        name: 'a client names with each command when its session began, and begins another where it is forgotten',
      },
    },
  ),
  replica(
    'session-of-server',
    'a server does not name when its own sessions began',
    {
      file: 'server/gateway.ts',
      find: 'const name = this.#names.acquire(this.catalogSeq);',
      replace: 'const name = this.#names.acquire(null);',
    },
    { test: { file: HTTP, name: 'a server names when its own sessions began' } },
  ),
  replica(
    'upload-twice',
    'an upload that two servers complete is completed by each of them',
    {
      file: 'server/http/tus-uploads.ts',
      find: 'await this.#files.name(path, state, conditions, key);',
      replace: 'await this.#files.name(path, state, conditions, null);',
    },
    { test: { file: HTTP, name: 'an upload that two servers complete is completed once' } },
  ),
  replica(
    'key-twice',
    'a server that comes later carries out a request with a key that another has carried out',
    {
      file: 'server/http/new-files.ts',
      find: "(commands.result as CommandResults['replace'] | null) ??",
      replace: 'null ??',
    },
    { test: { file: HTTP, name: 'a request with a key that two servers carry out is carried out once' } },
  ),
  replica(
    'write-unpinned',
    'each attempt of a write with a key names a beginning of its own, and what its file has forgotten is done again',
    {
      file: 'server/http/partial-write.ts',
      find: 'return await pinWrite(this.#gateway, key, write);',
      replace: 'return write;',
    },
    {
      test: {
        file: HTTP,
        name: 'all attempts of a write with a key name the file and the beginning that the first one named',
      },
    },
  ),
  replica(
    'write-pinned-twice',
    'an attempt of a write with a key names its own beginning although another one was faster to pin it',
    {
      file: 'server/http/idempotency.ts',
      find: '  return pinned;',
      replace: '  return write;',
    },
    {
      test: {
        file: HTTP,
        name: 'of two attempts of a write with a key at a time, both use what the faster one has pinned',
      },
    },
  ),
  replica(
    'write-pinned-late',
    'a write with a key is sent before a loss of power of all servers leaves its pin',
    {
      file: 'server/http/idempotency.ts',
      find: '  await gateway.flushCatalog();\n  return pinned;',
      replace: '  return pinned;',
    },
    {
      test: {
        file: HTTP,
        name: 'what a write with a key has pinned survives a loss of power before the write is sent',
      },
    },
  ),
];
