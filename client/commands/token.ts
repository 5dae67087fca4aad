import type { Command } from 'commander';
import { s3CredentialsOf } from '../../platform/s3-credentials.ts';
import type { Role } from '../../wire/access.ts';
import { refuseExisting, SECRET_MODE, writeAtomically } from '../certificates/files.ts';
import {
  drawKey,
  emptyTokenFile,
  issueToken,
  knownTokens,
  RELOAD_HINT,
  readTokenFile,
  tokensOption,
  writeTokenFile,
} from '../certificates/token-file.ts';
import { notFoundFailure, preconditionFailure } from '../terminal/failure.ts';
import { printJson, printLine, printTable } from '../terminal/output.ts';
import { collectVolume, credentialName, roleOption } from './cert.ts';
import { wholeNumber } from './cluster-command.ts';

const DAY_MS = 86_400_000;
const DAYS_MAX = 36_500;
const KEYS_MAX = 2;

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

/** `leasehold token`: the file with the tokens that servers know. It needs no running cluster. */
export function addTokenCommands(program: Command): void {
  const token = program.command('token').description('create and revoke the tokens of clients');

  tokensOption(token.command('create'))
    .description('create a token; it is printed once, or written to --out, and kept nowhere')
    .argument('<name>', 'name of the holder, shown in logs', credentialName)
    .addOption(roleOption())
    .option(
      '--volume <name>',
      'restrict it to this volume; may be repeated (default: all)',
      collectVolume,
      [],
    )
    .option('--days <count>', 'days of validity (default: until it is revoked)', wholeNumber(1, DAYS_MAX))
    .option('--out <file>', 'where the token is written, for --token-file; else it is printed')
    .option('--force', 'replace the file of --out')
    .action(async (name: string, options: CreateOptions) => {
      const known = (await readTokenFile(options.tokens)) ?? emptyTokenFile();
      if (known.tokens.some((one) => one.name === name)) {
        throw preconditionFailure(
          `Cannot create the token "${name}": it exists`,
          `revoke it first, with "leasehold token revoke ${name}", or choose another name`,
        );
      }
      if (options.out !== undefined) await refuseExisting([options.out], options.force === true);
      const { role, volume: volumes, days } = options;
      const grant = { name, role, volumes: volumes.length === 0 ? null : volumes };
      const drawn = issueToken(grant, days === undefined ? null : days * DAY_MS);
      const { text } = drawn;
      await writeTokenFile(options.tokens, { ...known, tokens: [...known.tokens, drawn.known] });
      if (options.out === undefined) printLine(text);
      else await writeAtomically(options.out, `${text}\n`, SECRET_MODE);
      process.stderr.write(`Added to ${options.tokens}: ${RELOAD_HINT}\n`);
    });

  tokensOption(token.command('ls'))
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
      printTable(rows, ['NAME', 'ROLE', 'VOLUMES', 'CREATED', 'EXPIRES']);
    });

  tokensOption(token.command('revoke'))
    .description('revoke a token; takes effect when servers reload the token file')
    .argument('<name>', 'name of the holder')
    .action(async (name: string, options: TokenOptions) => {
      const known = await knownTokens(options.tokens);
      const tokens = known.tokens.filter((one) => one.name !== name);
      if (tokens.length === known.tokens.length)
        throw notFoundFailure(`There is no token "${name}" in ${options.tokens}`);
      await writeTokenFile(options.tokens, { ...known, tokens });
      printLine(`${name} is revoked in ${options.tokens}: ${RELOAD_HINT}`);
    });

  tokensOption(token.command('s3'))
    .description('print the S3 access key of a token, and its secret, which "rekey" changes')
    .argument('<name>', 'name of the holder')
    .option('--json', 'print them as JSON')
    .action(async (name: string, options: TokenOptions & { readonly json?: true }) => {
      const { keys, tokens } = await knownTokens(options.tokens);
      const found = tokens.find((one) => one.name === name);
      const [key] = keys;
      if (found === undefined || key === undefined)
        throw notFoundFailure(`There is no token "${name}" in ${options.tokens}`);
      const credentials = s3CredentialsOf(key, found);
      if (options.json) return printJson(credentials);
      printLine(`AWS_ACCESS_KEY_ID=${credentials.accessKeyId}`);
      printLine(`AWS_SECRET_ACCESS_KEY=${credentials.secretAccessKey}`);
    });

  tokensOption(token.command('rekey'))
    .description(
      'create a new key for capabilities and S3 secrets; the previous one stays valid until the next rekey',
    )
    .action(async (options: TokenOptions) => {
      const known = await knownTokens(options.tokens);
      await writeTokenFile(options.tokens, { ...known, keys: [drawKey(), ...known.keys].slice(0, KEYS_MAX) });
      printLine(`${options.tokens} has a new key: ${RELOAD_HINT}`);
    });
}
