import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Role } from '../../wire/access.ts';
import {
  formatTokenFile,
  type KnownToken,
  parseTokenFile,
  TOKEN_ID_BYTES,
  TOKEN_KEY_BYTES,
  TOKEN_SECRET_BYTES,
  type TokenFile,
  tokenText,
} from '../../wire/tokens.ts';
import { refuseExisting, SECRET_MODE, writeWhole } from '../certificates/files.ts';
import { CommandFailure, EXIT_NOT_FOUND, EXIT_PRECONDITION, EXIT_USAGE, isSystemError } from '../failure.ts';
import { formatTable, printJson, printLine } from '../output.ts';
import { grantName, roleOption, volume } from './cert.ts';
import { wholeNumber } from './cluster-command.ts';

const DAY_MS = 86_400_000;
const DAYS_MAX = 36_500;
/** The key that signs, and the one before it: capabilities of that one end within minutes. */
const KEYS_MAX = 2;
const RELOAD = 'give it to all servers, and tell each with: kill -HUP PID';

interface TokenOptions {
  readonly tokens: string;
}

interface CreateOptions extends TokenOptions {
  readonly role: Role;
  readonly volume: readonly string[];
  readonly days?: number;
  readonly out?: string;
  readonly force?: true;
}

/** `leasehold token`: the file with the tokens that servers know. Nothing of it needs a cluster that runs. */
export function addTokenCommands(program: Command): void {
  const token = program
    .command('token')
    .description('make and revoke the tokens by which servers know their clients');

  common(token.command('create'))
    .description('make a token; it is printed once, or written to --out, and kept nowhere')
    .argument('<name>', 'whose it is, as it stands in logs', grantName)
    .addOption(roleOption())
    .option('--volume <name>', 'only this volume; once for each (default: all)', volume, [])
    .option('--days <count>', 'how long it is good (default: until it is revoked)', wholeNumber(1, DAYS_MAX))
    .option('--out <file>', 'where the token is written, for --token-file; else it is printed')
    .option('--force', 'replace the file of --out')
    .action(async (name: string, options: CreateOptions) => {
      const file = await readTokens(options.tokens);
      const known = file ?? { keys: [drawKey()], tokens: [] };
      if (known.tokens.some((one) => one.name === name)) {
        throw new CommandFailure(
          EXIT_PRECONDITION,
          `Cannot make a token "${name}": there is one`,
          `revoke it first, with "leasehold token revoke ${name}", or choose another name`,
        );
      }
      if (options.out !== undefined) await refuseExisting([options.out], options.force === true);
      const { text, made } = drawToken(name, options);
      await writeTokens(options.tokens, { ...known, tokens: [...known.tokens, made] });
      if (options.out === undefined) printLine(text);
      else await writeWhole(options.out, `${text}\n`, SECRET_MODE);
      process.stderr.write(`${options.tokens} knows it: ${RELOAD}\n`);
    });

  common(token.command('ls'))
    .description('list the tokens')
    .option('--json', 'print them as JSON')
    .action(async (options: TokenOptions & { readonly json?: true }) => {
      const { tokens } = await knownTokens(options.tokens);
      const shown = tokens.map(({ name, role, volumes, createdAt, expiresAt }) => ({
        ...{ name, role, volumes, createdAt, expiresAt },
      }));
      if (options.json) return printJson({ tokens: shown });
      const rows = shown.map(({ name, role, volumes, createdAt, expiresAt }) => [
        ...[name, role, volumes?.join(',') ?? 'all', createdAt, expiresAt ?? '-'],
      ]);
      for (const line of formatTable([['NAME', 'ROLE', 'VOLUMES', 'CREATED', 'EXPIRES'], ...rows]))
        printLine(line);
    });

  common(token.command('revoke'))
    .description('make a token worthless, from the moment on in which a server reads the file again')
    .argument('<name>', 'whose it is')
    .action(async (name: string, options: TokenOptions) => {
      const known = await knownTokens(options.tokens);
      const tokens = known.tokens.filter((one) => one.name !== name);
      if (tokens.length === known.tokens.length)
        throw new CommandFailure(EXIT_NOT_FOUND, `There is no token "${name}" in ${options.tokens}`);
      await writeTokens(options.tokens, { ...known, tokens });
      printLine(`${name} is revoked in ${options.tokens}: ${RELOAD}`);
    });

  common(token.command('rekey'))
    .description(
      'draw a new key by which servers sign capabilities; the one before stays good until the next time',
    )
    .action(async (options: TokenOptions) => {
      const known = await knownTokens(options.tokens);
      await writeTokens(options.tokens, { ...known, keys: [drawKey(), ...known.keys].slice(0, KEYS_MAX) });
      printLine(`${options.tokens} has a new key: ${RELOAD}`);
    });
}

function common(command: Command): Command {
  return command.option(
    '--tokens <file>',
    'the file of tokens',
    process.env.LEASEHOLD_TOKENS || 'tokens.json',
  );
}

function drawToken(
  name: string,
  { role, volume: volumes, days }: CreateOptions,
): { readonly text: string; readonly made: KnownToken } {
  const id = randomBytes(TOKEN_ID_BYTES).toString('hex');
  const secret = randomBytes(TOKEN_SECRET_BYTES).toString('base64url');
  const nowMs = Date.now();
  const made: KnownToken = {
    ...{ id, name, role, volumes: volumes.length === 0 ? null : volumes },
    hash: createHash('sha256').update(secret).digest('base64url'),
    createdAt: new Date(nowMs).toISOString(),
    expiresAt: days === undefined ? null : new Date(nowMs + days * DAY_MS).toISOString(),
  };
  return { text: tokenText(id, secret), made };
}

function drawKey(): string {
  return randomBytes(TOKEN_KEY_BYTES).toString('base64url');
}

async function knownTokens(path: string): Promise<TokenFile> {
  const found = await readTokens(path);
  if (found !== null) return found;
  throw new CommandFailure(
    EXIT_NOT_FOUND,
    `There is no file of tokens "${path}"`,
    'name it with --tokens; "leasehold token create" makes one',
  );
}

async function readTokens(path: string): Promise<TokenFile | null> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (isSystemError(error) && error.code === 'ENOENT') return null;
    throw error;
  }
  try {
    return parseTokenFile(text);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new CommandFailure(EXIT_USAGE, `Cannot read "${path}" as a file of tokens: ${why}`);
  }
}

function writeTokens(path: string, file: TokenFile): Promise<void> {
  return writeWhole(path, formatTokenFile(file), SECRET_MODE);
}
