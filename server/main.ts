import { readFileSync } from 'node:fs';
import { systemWorld } from '../world/system-world.ts';
import { readConfig, type ServerConfig, serverHelp } from './config/config.ts';
import { ConfigurationError } from './config/configuration-error.ts';
import { endOnSignals } from './process/orderly-end.ts';
import { Server } from './server.ts';
import { FolderError } from './storage/folder-error.ts';
import { createLogger, endOnFatal } from './telemetry/log.ts';

/** Exit code for errors that need an operator: usage, configuration, a damaged data folder. */
const EXIT_USAGE = 2;
/** Exit code for temporary errors: a later start may succeed. */
const EXIT_TEMPORARY = 5;
const LISTEN_TEMPORARY: ReadonlySet<string> = new Set(['EADDRINUSE', 'EADDRNOTAVAIL']);

/** Runs a server until SIGINT or SIGTERM. @param argv the arguments after `leasehold server` */
export async function runServer(argv: readonly string[]): Promise<void> {
  if (argv.includes('--help') || argv.includes('-h')) {
    process.stdout.write(serverHelp());
    return;
  }
  let config: ServerConfig;
  try {
    config = readConfig(argv, process.env, (file) => readFileSync(file, 'utf8'));
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    refuse(error.message);
    return;
  }
  const log = createLogger(config, systemWorld);
  const fatal = endOnFatal(log);
  const surroundings = { world: systemWorld, log, fatal };
  let server: Server;
  try {
    server = await Server.start(config, surroundings);
  } catch (error) {
    if (error instanceof FolderError) {
      refuse(error.message, error.isTemporary ? EXIT_TEMPORARY : EXIT_USAGE);
    } else if (error instanceof ConfigurationError) {
      refuse(error.message);
    } else if (isListenError(error)) {
      const { host, port } = config.listen;
      const why = error.code === 'EADDRINUSE' ? 'another process has the port' : error.message;
      const code = LISTEN_TEMPORARY.has(error.code ?? '') ? EXIT_TEMPORARY : EXIT_USAGE;
      refuse(`Cannot listen on ${host}:${port}: ${why}. Stop that process, or choose another --listen`, code);
    } else {
      fatal(error);
    }
    return;
  }
  server.measureProcess();
  // Before the log says that the server listens: without a handler, the signal ends a process.
  process.on('SIGHUP', () => server.reload());
  endOnSignals(surroundings, () => server.stop());
  log.info({ id: config.id, listen: config.listen, data: config.data }, 'server listens');
}

function refuse(message: string, exitCode = EXIT_USAGE): void {
  process.stderr.write(`leasehold: ${message}\n`);
  process.exit(exitCode);
}

function isListenError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error && error.syscall === 'listen';
}

if (import.meta.main) await runServer(process.argv.slice(2));
