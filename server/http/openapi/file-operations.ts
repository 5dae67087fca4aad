import { NodeKind } from '../../../wire/catalog-api.ts';
import { Type } from '../../../wire/schema.ts';
import {
  type AnswerText,
  count,
  done,
  flag,
  json,
  jsonAnswer,
  type Operations,
  octets,
  switched,
  text,
} from './operation.ts';

const CONDITIONS = {
  'If-Match': text('Entity tags, or *: 412 unless one matches the current version'),
  'If-None-Match': text('Entity tags, or *: 412 if one matches the current version; 304 for GET and HEAD'),
  'If-Unmodified-Since': text('A date: 412 if the file was modified later'),
};
const READING = {
  ...CONDITIONS,
  'If-Modified-Since': text('A date: 304 if the file was not modified since'),
  Range: text('One range of bytes: bytes=0-99, bytes=100- or bytes=-100'),
  'If-Range': text('An entity tag or a date: sends the range only if it matches the current version'),
  'Want-Repr-Digest': text('Algorithms by weight, such as sha-256=1'),
  'Want-Content-Digest': text('As Want-Repr-Digest, of the body'),
};
const DIGESTS = {
  'Content-Digest': text('sha-256=:…:, sha-512=:…: of the body; 400 if it differs'),
  'Repr-Digest': text('As Content-Digest'),
  'Content-MD5': text('MD5 of the body in base64'),
};
const KEY = {
  'Idempotency-Key': text(
    'Idempotency key: a repeated request gets the first answer and is not executed again',
  ),
};
const Located = Type.Object({ volume: Type.String(), path: Type.String(), catalog: Type.Integer() });
const Attached = Type.Object({ volume: Type.String(), inode: Type.Integer() });
const Snapshot = Type.Object({
  snapshot: Type.String(),
  volume: Type.String(),
  name: Type.String(),
  serial: Type.Integer(),
  made: Type.String(),
  retainUntil: Type.Optional(Type.String()),
});
const RETAIN = text('A date such as 2030-01-31 or 2030-01-31T12:00:00Z, or a duration such as 30d');
const TRASH = { trash: flag('false: delete without moving to the trash') };
const PARENTS = { parents: flag('Creates missing parent directories') };
const VALIDATORS = ['ETag', 'Last-Modified'];
const WHO = ['Leasehold-Primary', 'Leasehold-Epoch', 'Leasehold-Role'];
const STORED: Readonly<Record<string, AnswerText>> = {
  201: { text: 'Created', headers: [...VALIDATORS, ...WHO] },
  204: { text: 'Replaced the existing file', headers: [...VALIDATORS, ...WHO] },
};
const TUS = { 'Tus-Resumable': Type.Literal('1.0.0') };

const Entry = Type.Object({
  name: Type.String(),
  kind: NodeKind,
  size: Type.Integer(),
  mode: Type.Integer(),
  modified: Type.String({ format: 'date-time' }),
  etag: Type.Optional(Type.String()),
  target: Type.Optional(Type.String()),
  attached: Type.Optional(Type.String()),
});
export const Listing = Type.Object({ entries: Type.Array(Entry), more: Type.Boolean() });

const TreeCopy = Type.Object({
  files: Type.Integer(),
  directories: Type.Integer(),
  links: Type.Integer(),
  bytes: Type.Integer(),
  same: Type.Integer(),
  skipped: Type.Array(Type.String()),
  junctions: Type.Optional(Type.Array(Type.Object({ path: Type.String(), volume: Type.String() }))),
  more: Type.Boolean(),
  next: Type.Optional(Type.String()),
});

const Trash = Type.Object({
  files: Type.Array(
    Type.Object({
      file: Type.Integer(),
      path: Type.String(),
      size: Type.Integer(),
      modified: Type.String({ format: 'date-time' }),
      removed: Type.String({ format: 'date-time' }),
      removedBy: Type.Optional(Type.String()),
      keptUntil: Type.String({ format: 'date-time' }),
    }),
  ),
  more: Type.Boolean(),
  next: Type.Optional(Type.String()),
});

export const FILE_OPERATIONS: Operations = {
  'GET /v1/files': {
    id: 'fetchFile',
    tag: 'files',
    summary: 'Contents of a file, or the entries of a directory, whose path ends in a slash',
    query: {
      limit: count('Maximum number of entries; default: all'),
      after: text('Entries after this name'),
      watch: switched('Server-sent events of changes, instead of the entries'),
      recursive: flag('With watch: also changes in subdirectories'),
    },
    headers: READING,
    answers: {
      200: {
        text: 'The contents; for a directory its entries in JSON, or a page',
        media: octets,
        headers: [...VALIDATORS, ...WHO, 'Accept-Ranges'],
      },
      206: { text: 'The range', media: octets, headers: [...VALIDATORS, ...WHO, 'Content-Range'] },
      304: { text: 'Not modified', headers: VALIDATORS },
      308: { text: 'The path of a directory ends in a slash', headers: ['Location'] },
    },
  },
  'HEAD /v1/files': {
    id: 'headFile',
    tag: 'files',
    summary: 'The headers of GET',
    headers: READING,
    answers: { 200: { text: 'Exists', headers: [...VALIDATORS, ...WHO, 'Content-Length'] }, 304: done },
  },
  'PUT /v1/files': {
    id: 'storeFile',
    tag: 'files',
    summary: 'Stores the body as a file, in one step; makes a directory, if the path ends in a slash',
    query: { ...PARENTS, ...TRASH },
    headers: { ...CONDITIONS, ...DIGESTS, ...KEY, 'Content-Range': text('Writes a part, as PATCH does') },
    body: octets,
    answers: STORED,
  },
  'PATCH /v1/files': {
    id: 'writePart',
    tag: 'files',
    summary:
      'Writes up to 4 MiB in place, in one step; exactly one of Content-Range, offset and append says where',
    query: { offset: count('Where the bytes go'), append: switched('At the end of the file') },
    headers: { ...CONDITIONS, ...DIGESTS, ...KEY, 'Content-Range': text('bytes FIRST-LAST/*') },
    body: octets,
    answers: { 204: { text: 'Written', headers: [...VALIDATORS, ...WHO, 'Leasehold-Offset'] } },
  },
  'POST /v1/files': {
    id: 'changeFile',
    tag: 'files',
    summary:
      'Copies or moves, sets flags, retains, takes the files of a form, or begins an upload in pieces (tus 1.0)',
    query: {
      ...TRASH,
      'copy-to': text('/path or volume:/path'),
      'move-to': text('/path'),
      'set-flags': text('Flags to set: immutable, append-only; separated by commas'),
      'clear-flags': text('Flags to clear'),
      retain: RETAIN,
      overwrite: flag('false: fail if the target exists'),
      resume: flag(
        'true: for directories, keep modification times, and skip files whose target has the same size and time',
      ),
      after: text('For directories: the "next" of the previous answer'),
      ...PARENTS,
    },
    headers: {
      ...CONDITIONS,
      ...KEY,
      ...TUS,
      'Upload-Length': count('Of the upload'),
      'Upload-Metadata': text('key base64, …'),
    },
    body: {
      type: 'multipart/form-data',
      schema: Type.Object({
        file: Type.Array(Type.Unsafe<Uint8Array>({ type: 'string', format: 'binary' })),
      }),
    },
    answers: {
      200: {
        ...jsonAnswer('Copied completely; for flags: the flags of the file; for retain: its date', TreeCopy),
        headers: ['Location'],
      },
      201: { text: 'Created', headers: ['Location', 'ETag'] },
      202: {
        ...jsonAnswer('Copied in part: repeat the request with after=next', TreeCopy),
      },
      204: { text: 'Done', headers: ['Location'] },
      303: { text: 'To a browser: the directory', headers: ['Location'] },
    },
  },
  'DELETE /v1/files': {
    id: 'removeFile',
    tag: 'files',
    summary: 'Removes a file, or an empty directory',
    query: { recursive: flag('A directory with all that is in it'), ...TRASH },
    headers: CONDITIONS,
    answers: {
      204: done,
      202: jsonAnswer(
        'Removed in part: repeat the request',
        Type.Object({ removed: Type.Integer(), more: Type.Boolean() }),
      ),
    },
  },
  'OPTIONS /v1/files': {
    id: 'fileOptions',
    tag: 'uploads',
    summary: 'Supported tus version and extensions',
    answers: { 204: { text: 'Headers of tus', headers: ['Tus-Version', 'Tus-Extension'] } },
  },
  'OPTIONS /v1/uploads': {
    id: 'uploadsOptions',
    tag: 'uploads',
    summary: 'Supported tus version and extensions',
    answers: { 204: done },
  },
  'OPTIONS /v1/uploads/:volume/:upload': {
    id: 'uploadOptions',
    tag: 'uploads',
    summary: 'Supported tus version and extensions',
    answers: { 204: done },
  },
  'HEAD /v1/uploads/:volume/:upload': {
    id: 'headUpload',
    tag: 'uploads',
    summary: 'Offset of an upload',
    headers: TUS,
    answers: {
      200: { text: 'Upload state', headers: ['Upload-Offset', 'Upload-Length', 'Upload-Metadata'] },
    },
  },
  'PATCH /v1/uploads/:volume/:upload': {
    id: 'continueUpload',
    tag: 'uploads',
    summary: 'Appends to an upload; the last piece creates the file',
    headers: {
      ...TUS,
      'Upload-Offset': count('Offset of this piece'),
      'Upload-Checksum': text('Algorithm and base64'),
    },
    body: { ...octets, type: 'application/offset+octet-stream' },
    answers: { 204: { text: 'Stored', headers: ['Upload-Offset', 'Upload-Expires'] } },
  },
  'DELETE /v1/uploads/:volume/:upload': {
    id: 'dropUpload',
    tag: 'uploads',
    summary: 'Cancels an upload',
    headers: TUS,
    answers: { 204: done },
  },
  'GET /v1/trash/:volume': {
    id: 'listTrash',
    tag: 'files',
    summary: 'Lists the trash',
    query: {
      path: text('Files that were at or below this path'),
      after: text('The "next" of the previous answer'),
      limit: count('Maximum number of files'),
    },
    answers: { 200: jsonAnswer('Files, in the order of their paths', Trash) },
  },
  'POST /v1/trash/:volume/:file/restore': {
    id: 'restoreFile',
    tag: 'files',
    summary: 'Restores a file from the trash, with missing parent directories',
    query: { to: text('Restore to this path') },
    answers: { 200: jsonAnswer('Where it is', Type.Object({ file: Type.Integer(), path: Type.String() })) },
  },
  'DELETE /v1/trash/:volume': {
    id: 'emptyTrash',
    tag: 'files',
    summary: 'Empties the trash',
    query: { path: text('Only files from at or below this path') },
    answers: { 202: jsonAnswer('Emptied in part: repeat the request'), 204: done },
  },
  'DELETE /v1/trash/:volume/:file': {
    id: 'dropTrashedFile',
    tag: 'files',
    summary: 'Deletes one file from the trash',
    answers: { 204: done },
  },
  'GET /v1/snapshots/:volume': {
    id: 'listSnapshots',
    tag: 'files',
    summary: 'Snapshots of a volume, the oldest first',
    answers: { 200: jsonAnswer('Snapshots', Type.Object({ snapshots: Type.Array(Snapshot) })) },
  },
  'PUT /v1/snapshots/:volume/:name': {
    id: 'makeSnapshot',
    tag: 'files',
    summary: 'Creates a snapshot, readable as volume@name',
    query: { retain: RETAIN },
    answers: { 201: jsonAnswer('The snapshot', Snapshot) },
  },
  'POST /v1/snapshots/:volume/:name': {
    id: 'retainSnapshot',
    tag: 'files',
    summary: 'Retains a snapshot, or prolongs its retention: until then it cannot be removed',
    query: { retain: RETAIN },
    answers: { 200: jsonAnswer('The snapshot', Snapshot) },
  },
  'DELETE /v1/snapshots/:volume/:name': {
    id: 'removeSnapshot',
    tag: 'files',
    summary: 'Removes a snapshot; its space is freed in the background',
    answers: { 204: done },
  },
  'GET /v1/locate': {
    id: 'locatePath',
    tag: 'files',
    summary: 'The volume and path to which a path leads through attached volumes',
    query: { end: text('target, or name: an attached volume at the end of the path is not entered') },
    answers: { 200: jsonAnswer('Volume, path, and the number of the volume’s catalog', Located) },
  },
  'PUT /v1/junctions': {
    id: 'attachVolume',
    tag: 'files',
    summary: 'Attaches a volume with a catalog of its own at a new directory of another volume',
    query: { volume: text('The volume that is attached') },
    answers: { 201: jsonAnswer('The volume, and the directory at which it is attached', Attached) },
  },
  'DELETE /v1/junctions': {
    id: 'detachVolume',
    tag: 'files',
    summary: 'Detaches the volume that is attached at a directory, and removes the directory',
    query: { volume: text('Without a path: the attached volume, wherever it is attached') },
    answers: { 204: done },
  },
  'GET /v1/info': {
    id: 'fileInfo',
    tag: 'state',
    summary: 'Primary, epoch, lease and replicas of a file',
    answers: { 200: { text: 'The file', media: json() } },
  },
};
