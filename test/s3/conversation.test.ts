/**
 * Requests of S3 and their answers, `test/testdata/s3/*.txt`, played on one server. A request is a line:
 *
 *     PUT /one/a%20b?x=y header=value body=text as=name
 *
 * Other words: `body=` the body; `fill=a:5MiB` a body of one letter; `xml=` a body of all that follows; `keys=2` a
 * request that deletes so many keys; `complete=1:$a,2:$b` completes an upload with these parts. `as=` names the upload
 * or the entity tag of the answer, for `$name` in later requests and in answers. `FILES PUT /...` is a request of the
 * REST interface. The answer has the status, with the code of an error, then headers, then elements without times and
 * owners.
 */
import { fileURLToPath } from 'node:url';
import { playConversations } from '../data-driven.ts';
import { startS3 } from './s3-server.ts';

const folder = fileURLToPath(new URL('../testdata/s3', import.meta.url));
const UNITS = { '': 1, KiB: 1024, MiB: 1024 * 1024 } as const;
const SHOWN = /^(etag|location|x-amz-(?!request-id).*|access-control-.*)$/;
/** Times, owners and what all answers have alike. */
const VOLATILE =
  /<(LastModified|CreationDate|Initiated|Owner|Initiator)>.*?<\/\1>|<StorageClass>STANDARD<\/StorageClass>/gs;

const ofVolumes = await startS3();
const ofDirectories = await startS3(['--s3-buckets', 'main:/']);
await ofDirectories.server.execute({
  kind: 'volume-create',
  name: 'main',
  replicas: 1,
  objectBytes: 131_072,
});

playConversations(folder, (file) => {
  // Buckets are volumes, or directories.
  const server = file.startsWith('directory') ? ofDirectories : ofVolumes;
  const names = new Map<string, string>();

  async function play(words: readonly string[]): Promise<string> {
    const [first = '', ...rest] = words.map(substituted);
    const isOfFiles = first === 'FILES';
    const [method, target = '', ...fields] = isOfFiles ? rest : [first, ...rest];
    const headers = new Headers();
    let body: Buffer | undefined;
    let name: string | undefined;
    for (const [index, field] of fields.entries()) {
      const equals = field.indexOf('=');
      const [key, value] = [field.slice(0, equals), field.slice(equals + 1)];
      if (key === 'xml') {
        body = Buffer.from([value, ...fields.slice(index + 1)].join(' '));
        break;
      }
      const made = bodyOf(key, value);
      if (made !== null) body = made;
      else if (key === 'as') name = value;
      else headers.set(key, value);
    }
    const url = `${isOfFiles ? server.server.url : server.url}${target}`;
    const init = body === undefined ? {} : { body };
    const response = await fetch(url, { method: method ?? '', headers, ...init });
    const text = await response.text();
    if (name !== undefined) {
      const given = /<UploadId>(.*?)</.exec(text) ?? /<ETag>&quot;(.*?)&quot;</.exec(text);
      names.set(name, given?.[1] ?? (response.headers.get('etag') ?? '').replaceAll('"', ''));
    }
    return isOfFiles ? String(response.status) : printed(response, text);
  }

  function substituted(word: string): string {
    return word.replaceAll(/\$(\w+)/g, (all, name: string) => names.get(name) ?? all);
  }

  function printed({ status, headers }: Response, text: string): string {
    const code = /^.*?<Error><Code>(\w+)<\/Code>/s.exec(text)?.[1];
    const shown = [...headers]
      .filter(([name]) => SHOWN.test(name))
      .map(([name, value]) => `${name}: ${value}`);
    const lines = [`${status} ${code ?? ''}`.trimEnd(), ...shown];
    if (code === undefined && text !== '') lines.push(...elementsOf(text));
    return lines.map(anonymous).join('\n');
  }

  /** Names instead of random ids. */
  function anonymous(line: string): string {
    // Versions of contents, which have counted elections.
    let text = line.replaceAll(/(&quot;|")[0-9a-f]+-\d+-\d+\1/g, '$1VERSION$1');
    for (const [name, value] of names) if (value.length >= 32) text = text.replaceAll(value, `$${name}`);
    return text;
  }

  return async (commands) => {
    const answers: string[] = [];
    for (const words of commands) answers.push(await play(words));
    return answers.join('\n');
  };
});

function bodyOf(key: string, value: string): Buffer | null {
  switch (key) {
    case 'body':
      return Buffer.from(value);
    case 'fill': {
      const [, letter = '', count, unit = ''] = /^(.):(\d+)(\w*)$/.exec(value) ?? [];
      return Buffer.alloc(Number(count) * UNITS[unit as keyof typeof UNITS], letter);
    }
    case 'keys': {
      const keys = Array.from(
        { length: Number(value) },
        (_, index) => `<Object><Key>k${index}</Key></Object>`,
      );
      return Buffer.from(`<Delete><Quiet>true</Quiet>${keys.join('')}</Delete>`);
    }
    case 'complete': {
      const parts = value.split(',').map((part) => {
        const [number, etag, algorithm, checksum] = part.split(':');
        const of = algorithm === undefined ? '' : `<Checksum${algorithm}>${checksum}</Checksum${algorithm}>`;
        return `<Part><PartNumber>${number}</PartNumber><ETag>"${etag}"</ETag>${of}</Part>`;
      });
      return Buffer.from(`<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`);
    }
    default:
      return null;
  }
}

/** The root, and each element in it, on a line. */
function elementsOf(document: string): string[] {
  if (!document.startsWith('<?xml')) return [document];
  const text = document
    .replace(/^<\?xml.*?\?>\s*/, '')
    .replaceAll(/ xmlns(:\w+)?="[^"]*"/g, '')
    .replaceAll(VOLATILE, '');
  const [, root = '', inner = ''] = /^<(\w+)>(.*)<\/\1>$/s.exec(text) ?? [];
  const lines = [`<${root}>`];
  for (let rest = inner; rest !== ''; ) {
    const [all = '', name] = /^<(\w+)[^>]*>/.exec(rest) ?? [];
    const end = name === undefined ? rest.length : rest.indexOf(`</${name}>`) + `</${name}>`.length;
    lines.push((all === '' ? rest : rest.slice(0, end)).replaceAll('\n', '&#xa;'));
    rest = rest.slice(end);
  }
  return lines;
}
