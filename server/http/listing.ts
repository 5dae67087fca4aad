import { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { dateOfNs } from '../../base/dates.ts';
import type { Attributes, QueryResults } from '../../wire/catalog-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { etagOf } from './conditions.ts';

const PAGE_COUNT = 1000;

type Page = QueryResults['list'];

/**
 * Sends a directory's entries as JSON, at most `limit` of those after `after`. Each page is one state of the directory;
 * an entry that exists throughout is listed once.
 */
export async function sendListing(
  reply: FastifyReply,
  gateway: Gateway,
  directory: Attributes,
  after: string,
  limit: number | null,
): Promise<FastifyReply> {
  const countMax = limit ?? Number.MAX_SAFE_INTEGER;
  // Before the answer begins, so that a failure is a problem document.
  const first = await pageOf(gateway, directory, after, countMax);
  reply.type('application/json; charset=utf-8');
  return reply.send(Readable.from(textOf(gateway, directory, first, countMax), { objectMode: false }));
}

async function* textOf(
  gateway: Gateway,
  directory: Attributes,
  first: Page,
  limit: number,
): AsyncGenerator<string> {
  let page = first;
  let remaining = limit;
  let separator = '{"entries":[';
  for (;;) {
    let text = '';
    for (const { name, attributes } of page.entries) {
      text += `${separator}\n${JSON.stringify(entryOf(name, attributes))}`;
      separator = ',';
    }
    remaining -= page.entries.length;
    const last = page.entries.at(-1);
    const done = !page.more || remaining <= 0 || last === undefined;
    if (done) {
      yield `${text}${separator === ',' ? '\n' : separator}],"more":${page.more}}\n`;
      return;
    }
    yield text;
    page = await pageOf(gateway, directory, last.name, remaining);
  }
}

async function pageOf(
  gateway: Gateway,
  directory: Attributes,
  after: string,
  remaining: number,
): Promise<Page> {
  const countMax = Math.min(PAGE_COUNT, remaining);
  const { inode, snapshot } = directory;
  return gateway.query({ kind: 'list', inode, after, countMax, ...(snapshot !== undefined && { snapshot }) });
}

function entryOf(name: string, attributes: Attributes): Record<string, unknown> {
  const { inode, kind, sizeBytes, mode, modifiedNs, contents, target, flags, junction } = attributes;
  const { retainUntilNs } = attributes;
  return {
    name,
    kind,
    size: sizeBytes,
    mode,
    modified: new Date(Number(BigInt(modifiedNs) / 1_000_000n)).toISOString(),
    ...(kind === 'file' ? { etag: etagOf(inode, contents) } : {}),
    ...(kind === 'symlink' ? { target } : {}),
    ...(flags === undefined ? {} : { flags }),
    ...(retainUntilNs === undefined ? {} : { retainUntil: dateOfNs(retainUntilNs) }),
    ...(junction === undefined ? {} : { attached: junction.volume }),
  };
}
