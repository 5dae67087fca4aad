import type { IncomingMessage } from 'node:http';
import { finished, type Readable } from 'node:stream';
import { Busboy, type BusboyFileStream } from '@fastify/busboy';
import { ServiceError } from '../../base/errors.ts';
import { utf8Text } from '../../base/utf8.ts';

const FILES_MAX = 1000;
const FIELDS_MAX = 100;
const FIELD_BYTES_MAX = 64 * 1024;

/** Returns the Content-Type as it was sent: `routingUrl` hides it from Fastify under `/v1/files/`. */
export function contentTypeOf(raw: IncomingMessage): string {
  const at = raw.rawHeaders.findIndex((text, index) => index % 2 === 0 && /^content-type$/i.test(text));
  return at < 0 ? '' : (raw.rawHeaders[at + 1] ?? '');
}

export function isForm(label: string): boolean {
  return /^multipart\/form-data\s*;/i.test(label);
}

/**
 * Reads a browser's form (RFC 7578), one file after the other, in bounded memory. `take` reads a file's body to the
 * end.
 * @throws ServiceError `bad-request` for a malformed or incomplete form; else what `take` rejected with
 */
export async function receiveForm(
  raw: IncomingMessage,
  take: (name: string, body: Readable) => Promise<void>,
): Promise<void> {
  const parser = parserOf(raw);
  const open = new Set<BusboyFileStream>();
  let failure: { readonly error: unknown } | null = null;
  let work = Promise.resolve();
  const fail = (error: unknown): void => {
    failure ??= { error };
  };
  parser.on('file', (_field: string, stream: BusboyFileStream, name: string | undefined) => {
    // A form without a chosen file has a part without a name. After a failure the rest is read and dropped.
    if (name === undefined || name === '' || failure !== null) {
      stream.resume();
      return;
    }
    // The reader of the stream gets the error; without one the form has failed before.
    stream.on('error', () => {});
    open.add(stream);
    const taken = async (): Promise<void> => {
      if (failure === null) await take(unescaped(name.slice(name.lastIndexOf('/') + 1)), stream);
    };
    work = work
      .then(taken)
      .catch(fail)
      .finally(() => {
        open.delete(stream);
        stream.resume();
      });
  });
  onDispositions(parser, (bytes) => {
    if (utf8Text(bytes) === null) fail(new ServiceError('bad-request', 'A name in the form is not UTF-8'));
  });
  parser.on('filesLimit', () => {
    fail(new ServiceError('too-large', `A form holds up to ${FILES_MAX} files`));
  });
  await new Promise<void>((resolve) => {
    const failIncomplete = (cause: unknown): void => {
      fail(
        new ServiceError(
          'bad-request',
          'The form was incomplete when the connection ended: send it again',
          {},
          { cause },
        ),
      );
      for (const stream of open) stream.destroy(new Error('The form has ended'));
      resolve();
    };
    parser.on('finish', resolve);
    parser.on('error', failIncomplete);
    finished(raw, (error) => {
      if (error) failIncomplete(error);
    });
    raw.pipe(parser);
  });
  await work;
  throwFailure(failure);
}

function parserOf(raw: IncomingMessage): InstanceType<typeof Busboy> {
  const limits = { files: FILES_MAX, fields: FIELDS_MAX, fieldSize: FIELD_BYTES_MAX };
  try {
    // A name may contain a backslash: the caller decides what is a path.
    return new Busboy({ headers: { 'content-type': contentTypeOf(raw) }, limits, preservePath: true });
  } catch (cause) {
    throw new ServiceError('bad-request', "The form's Content-Type has no boundary", {}, { cause });
  }
}

/** Parts before the parser decodes names and replaces bytes that are not UTF-8 by U+FFFD. */
interface PartSource {
  on(event: 'part', run: (part: PartHeaders) => void): void;
}
interface PartHeaders {
  prependListener(
    event: 'header',
    run: (header: Readonly<Record<string, readonly string[] | undefined>>) => void,
  ): void;
}

/** Calls `judge` with each part's raw Content-Disposition before its file; the parser has no public access to it. */
function onDispositions(parser: InstanceType<typeof Busboy>, judge: (bytes: Uint8Array) => void): void {
  const { _parser: multipart } = parser as unknown as { readonly _parser: { readonly parser: PartSource } };
  multipart.parser.on('part', (part) => {
    part.prependListener('header', (header) => {
      judge(Buffer.from(header['content-disposition']?.[0] ?? '', 'latin1'));
    });
  });
}

/** Decodes the three characters that browsers escape in names, and no others ([HTML], "Multipart form data"). */
function unescaped(name: string): string {
  return name.replace(/%(?:22|0A|0D)/gi, decodeURIComponent);
}

function throwFailure(failure: { readonly error: unknown } | null): void {
  if (failure !== null) throw failure.error;
}
