/**
 * Known bugs of what survives a loss of power of all servers, and of what a mount shows of contents that others change; noticed by real servers
 * and mounts, see `planted.ts`.
 */
import { type Planted, plantedIn } from './planted.ts';

const replica = plantedIn('replica');

const FILE = 'test/cluster/power-loss-of-all.test.ts';
const CONTENTS = 'test/cluster/mount-contents.test.ts';

export const PLANTED_DURABILITY: readonly Planted[] = [
  replica(
    'directory-unflushed',
    'fsync of a directory is answered before the catalog has flushed its names',
    {
      file: 'fuse/file-system.ts',
      find: "await this.#backend.persistNames?.('cluster');",
      replace: '',
    },
    { test: { file: FILE, name: 'mount: `fsync` of a directory: a file is renamed over another one' } },
  ),
  replica(
    'rename-unflushed',
    'fsync of a file leaves the rename and the mode unflushed that came after its first fsync',
    {
      file: 'fuse/open-files.ts',
      find: "this.#backend.persistNames?.('mount')",
      replace: 'undefined',
    },
    {
      test: {
        file: FILE,
        name: 'mount: `fsync` or `fdatasync` of a file: a file gets another name and mode before it is synced again',
      },
    },
  ),
  replica(
    'operators-unflushed',
    'a command of operators is answered once a majority has applied it',
    {
      file: 'server/catalog/catalog-service.ts',
      find: 'if (DURABLE_KINDS.has(command.kind)) await this.#bounded(this.#parts.driver.flush());',
      replace: '',
    },
    {
      test: {
        file: FILE,
        name: 'REST: a command of operators by `POST /v1/catalog/commands`: a volume is made',
      },
    },
  ),
  replica(
    'command-line-unflushed',
    'a command of the command line succeeds before the catalog has flushed what it did',
    {
      file: 'client/commands/cluster-command.ts',
      find: '    await flushed(client, call);\n  } finally {',
      replace: '  } finally {',
    },
    { test: { file: FILE, name: 'command line: a command that succeeds: mkdir' } },
  ),
  replica(
    'retry-unflushed',
    'a PUT of a directory that is there is answered although the request that made it failed before its flush',
    {
      file: 'server/http/directories.ts',
      find: '    await this.#gateway.flushCatalog();\n    return reply',
      replace: '    if (created) await this.#gateway.flushCatalog();\n    return reply',
    },
    {
      test: {
        file: FILE,
        name: 'REST: a change under `/v1/files`, `/v1/uploads`, `/v1/snapshots`, `/v1/trash`: PUT of a directory whose first answer was lost',
      },
    },
  ),
  replica(
    'ahead-unconfirmed',
    'a reader past the kernel’s pages is given what was fetched ahead of it before another mount wrote there',
    {
      file: 'fuse/open-files.ts',
      find: 'const strictMs = wasAsked ? ASKED_MS : 0;',
      replace: 'const strictMs = 1_000;',
    },
    {
      test: {
        file: CONTENTS,
        name: 'are read at once with cache=strict, transport=kernel, whatever was fetched ahead',
      },
    },
  ),
  replica(
    'mapping-kept',
    'the kernel keeps the pages of a mapped file that another mount has written',
    {
      file: 'fuse/open-files.ts',
      find: 'if (dropsPages) await file.refreshPages(attributes, () => this.#dropPages(file));',
      replace: '',
    },
    { test: { file: CONTENTS, name: 'are shown by a mapping with cache=strict' } },
  ),
];
