import type { Answered } from '../answered.ts';
import { ErrnoError } from '../errno.ts';
import { RENAME_EXCHANGE, soughtBy } from '../transport/stat.ts';
import type { FileSystemCalls } from '../transport.ts';
import { decodeFlags, encodeFlags, flagsFormOf } from './ioctls.ts';
import type { NodeNumbers } from './replies.ts';
import { putIoctl, putLockHolder, putOpened, putSpace } from './replies.ts';
import { callerOf, type DecodedRequest, type RequestAnswers, type RequestOf } from './request-answers.ts';
import type { Request } from './requests.ts';

/** Requests that the session handles itself. */
export type SessionKind = 'init' | 'destroy' | 'interrupt' | 'forget' | 'unknown';
export type Handlers<Kind extends Request['kind'] = Request['kind']> = {
  readonly [Of in Kind]: (asked: DecodedRequest<RequestOf<Of>>) => void;
};

/** @param changedXattr called before a change of an extended attribute is answered, whatever its outcome */
export function handlersOf(
  calls: FileSystemCalls,
  answers: RequestAnswers,
  numbers: NodeNumbers,
  changedXattr: () => void,
): Handlers<Exclude<Request['kind'], SessionKind>> {
  return {
    lookup(asked) {
      const { name } = asked.request;
      answers.entry(asked, name, () => calls.lookup(asked.inode, name, asked.header.pid));
    },
    attributes: (asked) =>
      answers.attributes(asked, () =>
        asked.request.withCreation === true
          ? calls.attributesWithCreation(asked.inode)
          : calls.attributes(asked.inode),
      ),
    'set-attributes': (asked) => answers.changedAttributes(asked, () => setAttributes(calls, asked)),
    'read-link': (asked) => answers.bytes(asked, async () => Buffer.from(await calls.readLink(asked.inode))),
    symlink(asked) {
      const { name, target } = asked.request;
      answers.entry(asked, name, () => calls.symlink(asked.inode, name, target, callerOf(asked)));
    },
    'make-node'(asked) {
      const { name, mode, device } = asked.request;
      answers.entry(asked, name, () => calls.makeNode(asked.inode, name, mode, device, callerOf(asked)));
    },
    'make-directory'(asked) {
      const { name, mode } = asked.request;
      answers.entry(asked, name, () => calls.makeDirectory(asked.inode, name, mode, callerOf(asked)));
    },
    link(asked) {
      const { name, of } = asked.request;
      answers.entry(asked, name, () => calls.link(numbers.inode(of), asked.inode, name, asked.header.pid));
    },
    unlink: (asked) =>
      answers.changedName(asked, () => calls.unlink(asked.inode, asked.request.name, asked.header.uid)),
    'remove-directory': (asked) =>
      answers.done(asked, () => calls.removeDirectory(asked.inode, asked.request.name)),
    rename(asked) {
      const { name, flags, toParent, toName } = asked.request;
      const { uid, gid } = asked.header;
      const to = { parent: numbers.inode(toParent), name: toName };
      const from = { parent: asked.inode, name };
      answers.renamed(asked, from, to, (flags & RENAME_EXCHANGE) !== 0, () =>
        calls.rename(from, to, flags, uid, gid),
      );
    },
    open(asked) {
      const { flags, killsPrivileges } = asked.request;
      answers.opened(asked, () => calls.open(asked.inode, flags, callerOf(asked, killsPrivileges)));
    },
    create(asked) {
      const { name, mode, flags, killsPrivileges } = asked.request;
      answers.created(asked, name, () =>
        calls.create(asked.inode, name, mode, flags, callerOf(asked, killsPrivileges)),
      );
    },
    tmpfile(asked) {
      const { mode, flags, killsPrivileges } = asked.request;
      answers.created(asked, null, () =>
        calls.createUnnamed(asked.inode, mode, flags, callerOf(asked, killsPrivileges)),
      );
    },
    read(asked) {
      const { handle, offset, length } = asked.request;
      answers.bytes(
        asked,
        () => calls.read(handle, offset, length),
        (bytes) => calls.taken(bytes),
      );
    },
    write(asked) {
      const { handle, offset, bytes, appends, killsPrivileges } = asked.request;
      answers.count(asked, () =>
        calls.write(handle, offset, bytes, callerOf(asked, killsPrivileges), appends),
      );
    },
    flush: (asked) => answers.done(asked, () => calls.flush(asked.request.handle, asked.request.owner)),
    persist: (asked) => answers.done(asked, () => calls.persist(asked.request.handle)),
    'persist-directory': (asked) =>
      answers.done(asked, () => calls.persistDirectory(asked.inode, asked.request.handle)),
    release: (asked) => answers.done(asked, () => calls.release(asked.request.handle)),
    allocate(asked) {
      const { handle, mode, offset, length } = asked.request;
      // The kernel does not say, and leaves it to the file system: as for a write.
      const by = callerOf(asked, asked.header.uid !== 0);
      answers.done(asked, () => calls.allocate(handle, mode, offset, length, by));
    },
    seek(asked) {
      const { handle, offset, whence } = asked.request;
      const what = soughtBy(whence);
      answers.count(asked, () => calls.seek(handle, offset, what));
    },
    'copy-range'(asked) {
      const { from, fromOffset, to, toOffset, length, flags } = asked.request;
      if (flags !== 0) throw new ErrnoError('EINVAL', `Cannot copy with flags ${flags}`);
      const by = callerOf(asked, asked.header.uid !== 0);
      answers.count(asked, () => calls.copyRange(from, fromOffset, to, toOffset, length, by));
    },
    'open-directory': (asked) =>
      answers.put(
        asked,
        () => calls.openDirectory(asked.inode, asked.request.flags),
        (reply, at, handle) => putOpened(reply, at, handle, 0),
        (handle) => calls.releaseDirectory(handle),
      ),
    'read-directory': (asked) => answers.listing(asked),
    'release-directory': (asked) => answers.done(asked, () => calls.releaseDirectory(asked.request.handle)),
    space: (asked) => answers.put(asked, () => calls.space(), putSpace),
    xattr: (asked) => answers.sized(asked, () => calls.xattr(asked.inode, asked.request.name)),
    xattrs: (asked) =>
      answers.sized(asked, async () => {
        const names = await calls.xattrs(asked.inode, callerOf(asked));
        return Buffer.from(names.map((name) => `${name}\0`).join(''));
      }),
    'set-xattr'(asked) {
      const { name, value, flags, clearsSetgid } = asked.request;
      answers.done(asked, () =>
        calls.setXattr(asked.inode, name, value, flags, clearsSetgid).finally(changedXattr),
      );
    },
    'remove-xattr': (asked) => answers.done(asked, () => calls.removeXattr(asked.inode, asked.request.name)),
    ioctl: (asked) => answers.put(asked, () => answerIoctl(calls, answers, asked), putIoctl),
    'lock-holder': (asked) =>
      answers.put(asked, () => calls.lockHolder(asked.request.handle, asked.request.lock), putLockHolder),
    lock(asked) {
      const { handle, lock, waits } = asked.request;
      const abort = new AbortController();
      answers.done(asked, () => calls.lock(handle, lock, waits, abort.signal), abort);
    },
  };
}

async function setAttributes(
  calls: FileSystemCalls,
  asked: DecodedRequest<RequestOf<'set-attributes'>>,
): Promise<Answered> {
  const { inode } = asked;
  const { sizeBytes, isOpen, killsPrivileges, changes } = asked.request;
  const by = callerOf(asked, killsPrivileges);
  if (sizeBytes === undefined) {
    return Object.keys(changes).length === 0
      ? calls.touchStatus(inode, by)
      : calls.setAttributes(inode, changes);
  }
  const attributes = await calls.truncate(inode, sizeBytes, by, !isOpen);
  const { modified, ...others } = changes;
  // The truncate has set the current time already.
  const rest = modified === undefined || modified.kind === 'now' ? others : changes;
  return Object.keys(rest).length === 0 ? attributes : calls.setAttributes(inode, rest);
}

async function answerIoctl(
  calls: FileSystemCalls,
  answers: RequestAnswers,
  asked: DecodedRequest<RequestOf<'ioctl'>>,
): Promise<Buffer> {
  const { inode, request } = asked;
  const form = flagsFormOf(request.command);
  if (form === undefined) throw new ErrnoError('ENOTTY', `Cannot do ${request.command.toString(16)}`);
  if (!form.sets) return encodeFlags(form, (await calls.attributes(inode)).flags ?? []);
  await answers.changingAttributes(asked, () =>
    calls.setFlags(inode, decodeFlags(form, request.bytes), callerOf(asked)),
  );
  return Buffer.alloc(0);
}
