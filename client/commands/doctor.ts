import type { Command } from 'commander';
import { writeBundle } from '../doctor/bundle.ts';
import { examineCertificates } from '../doctor/certificates.ts';
import { examineCluster, examinePorts } from '../doctor/cluster.ts';
import { examineDataFolder } from '../doctor/data-folder.ts';
import { allServers } from '../doctor/doctor-client.ts';
import type { Finding } from '../doctor/finding.ts';
import { examineMachine } from '../doctor/machine.ts';
import { examineSnapshots } from '../doctor/snapshots.ts';
import { programVersion } from '../mounts/programs.ts';
import { EXIT_DEGRADED, EXIT_FAILED, generalFailure } from '../terminal/failure.ts';
import { printJson, printLine } from '../terminal/output.ts';
import { accessOf, clusterCommand, serversOf } from './cluster-command.ts';

interface DoctorOptions {
  readonly data?: string;
  readonly listen?: string;
  readonly json?: true;
  readonly bundle?: string;
  readonly config?: readonly string[];
  readonly log?: readonly string[];
}

export function addDoctorCommand(program: Command): void {
  clusterCommand(program, 'doctor')
    .description('check this machine and the cluster for problems, and suggest remedies')
    .option(
      '--data <dir>',
      'data folder of a server here (default: LEASEHOLD_DATA; without it this check is skipped)',
    )
    .option(
      '--listen <address>',
      'HOST:PORT where a server is to listen (default: those of --servers that are here)',
    )
    .option('--json', 'print it as JSON')
    .option('--bundle <file>', 'also write a .tar.gz for support: findings, status, metrics, logs')
    .option('--config <files...>', 'configurations of servers to put into the bundle, without secrets')
    .option(
      '--log <files...>',
      'logs of servers and mounts to put into the bundle; the journal is in it anyway',
    )
    .addHelpText('after', '\nExit codes: 0 all is well, 1 something failed, 7 there are warnings only')
    .action(async (options: DoctorOptions, command: Command) => {
      if (process.platform !== 'linux') throw generalFailure('Cannot run: this works on Linux only');
      const named = serversOf(command);
      const access = accessOf(command);
      const servers = await allServers(named, access);
      const data = options.data ?? process.env.LEASEHOLD_DATA;
      const findings = [
        ...(await examineMachine(process.getuid?.() === 0)),
        ...(await (options.listen === undefined
          ? examinePorts(named, access)
          : examinePorts([options.listen]))),
        ...(data === undefined || data === '' ? [] : await examineDataFolder(data)),
        ...(await examineCertificates(servers, access)),
        ...(await examineCluster(servers, programVersion(), access)),
        ...(await examineSnapshots(servers, access)),
      ];
      if (options.bundle !== undefined) {
        const { bundle, config: configs = [], log: logs = [] } = options;
        await writeBundle(bundle, { version: programVersion(), findings, servers, access, configs, logs });
        process.stderr.write(
          `leasehold: wrote ${bundle}; known secrets are removed, but check it before you share it\n`,
        );
      }
      const states = findings.map(({ state }) => state);
      if (options.json) printJson({ ok: states.every((state) => state === 'ok'), findings });
      else print(findings);
      if (states.includes('failed')) process.exitCode = EXIT_FAILED;
      else if (states.includes('warning')) process.exitCode = EXIT_DEGRADED;
    });
}

function print(findings: readonly Finding[]): void {
  for (const { name, state, found, fix } of findings) {
    printLine(`${state.padEnd('warning'.length)}  ${name}: ${found}`);
    if (fix !== '') printLine(`         ${fix}`);
  }
}
