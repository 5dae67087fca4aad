import { hostname } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { isVolumeName } from '../../wire/access.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { DriverOptions } from '../csi/driver.ts';
import { usageFailure } from '../terminal/failure.ts';
import { printText } from '../terminal/output.ts';
import { accessFiles } from '../transport/access.ts';
import {
  accessOptions,
  clusterCommand,
  durationOption,
  serversOf,
  timeoutOf,
  zoneOf,
} from './cluster-command.ts';

const DRIVER_NAME = 'csi.leasehold';
/** Of the specification: a domain name of at most 63 characters. */
const DRIVER_FORM = /^[a-zA-Z0-9](?:[a-zA-Z0-9.-]{0,61}[a-zA-Z0-9])?$/;
const STATE_FOLDER = '/var/lib/leasehold-csi';
const RECORDS_VOLUME = 'csi-records';
const CHECK_INTERVAL_MS = 10_000;
const PID_MAX = 4_194_304;

interface CsiOptions {
  readonly endpoint?: string;
  readonly nodeId?: string;
  readonly mode: DriverOptions['mode'];
  readonly topology?: true;
  readonly driverName: string;
  readonly stateDir: string;
  readonly records: string;
  readonly mounter: 'process' | 'systemd' | 'launcher';
  readonly launcher?: string;
  readonly hostProgram: string;
  readonly hostPid?: number;
  readonly checkInterval: number;
}

export function addCsiCommand(program: Command): void {
  const csi = clusterCommand(
    program,
    'csi',
    'run the CSI driver, which gives volumes to containers (docs/csi.md)',
  )
    .option('--endpoint <url>', 'socket at which it serves calls, such as unix:///csi/csi.sock')
    .option('--node-id <id>', 'name of this node (default: its host name)', nodeId)
    .addOption(
      new Option('--mode <mode>', 'which services it has besides Identity')
        .choices(['all', 'controller', 'node'])
        .default('all'),
    )
    .option('--topology', 'report the zones of nodes and volumes; all nodes have a --zone then')
    .option('--driver-name <name>', 'name of the driver, as a domain name', driverName, DRIVER_NAME)
    .option('--state-dir <dir>', 'folder of the node that survives a restart of the plugin', STATE_FOLDER)
    .option('--records <volume>', "volume of the driver's records; it is made", recordsVolume, RECORDS_VOLUME)
    .addOption(
      new Option('--mounter <kind>', 'what starts the processes of mounts, and so decides about their life')
        .choices(['process', 'systemd', 'launcher'])
        .default('process'),
    )
    .option('--launcher <url>', 'socket of "leasehold csi launcher", for --mounter launcher')
    .option(
      '--host-program <words>',
      'command line of leasehold on the host, for --mounter systemd',
      'leasehold',
    )
    .option(
      '--host-pid <pid>',
      'run systemd-run in the mount namespace of this process, such as 1',
      processId,
    )
    .addOption(
      durationOption('--check-interval <duration>', 'how often dead mounts are searched', CHECK_INTERVAL_MS),
    )
    .action(async (options: CsiOptions, command: Command) => {
      // Not by commander, which would require it of the launcher, too.
      const { endpoint } = options;
      if (endpoint === undefined)
        throw usageFailure('Cannot serve calls: --endpoint is missing', 'give it as unix:///csi/csi.sock');
      const { runDriver } = await import('../csi/driver.ts');
      const {
        nodeId: id = hostname(),
        checkInterval: checkIntervalMs,
        records: recordsIn,
        topology = false,
        ...others
      } = options;
      await runDriver({
        ...others,
        ...{ endpoint, nodeId: id, checkIntervalMs, recordsIn, topology },
        cluster: {
          world: systemWorld,
          servers: serversOf(command),
          access: accessFiles(accessOptions(command)),
          ...timeoutOf(command),
        },
        zone: zoneOf(command),
        log: logLine,
      });
    });

  csi
    .command('launcher')
    .description('start mounts for "leasehold csi --mounter launcher"; they live as long as its container')
    .requiredOption('--endpoint <url>', 'socket at which it takes orders, such as unix:///csi/launcher.sock')
    .action(async ({ endpoint }: { readonly endpoint: string }) => {
      const { runLauncher } = await import('../csi/driver.ts');
      await runLauncher(endpoint, logLine);
    });
}

/** Logs a line of JSON; a container's log is its output. */
function logLine(message: string, fields: Readonly<Record<string, unknown>> = {}): void {
  const time = new Date(systemWorld.wallMs()).toISOString();
  printText(`${JSON.stringify({ time, message, ...fields })}\n`);
}

function nodeId(text: string): string {
  if (text !== '' && Buffer.byteLength(text) <= 256 && !/\p{Cc}/u.test(text)) return text;
  throw new InvalidArgumentError('It has 1 to 256 bytes, without control characters.');
}

function driverName(text: string): string {
  if (DRIVER_FORM.test(text)) return text;
  throw new InvalidArgumentError('It is a domain name of at most 63 characters.');
}

function recordsVolume(text: string): string {
  if (isVolumeName(text)) return text;
  throw new InvalidArgumentError('It is the name of a volume.');
}

function processId(text: string): number {
  const pid = /^[1-9][0-9]{0,6}$/.test(text) ? Number(text) : Number.NaN;
  if (pid <= PID_MAX) return pid;
  throw new InvalidArgumentError('It is the number of a process, such as 1.');
}
