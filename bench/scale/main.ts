import { wantedOrExit } from '../command-line.ts';
import { machineHere, machineText } from '../machine.ts';
import { argumentsOf, type SectionName, USAGE, type Wanted } from './arguments.ts';
import { Report } from './report.ts';
import { filesSection } from './sections/files.ts';
import { lookupsSection } from './sections/lookups.ts';
import { manySection } from './sections/many.ts';
import { moveSection } from './sections/move.ts';
import { serversSection } from './sections/servers.ts';
import { volumesSection } from './sections/volumes.ts';

const RUN: Readonly<Record<SectionName, (wanted: Wanted, report: Report) => Promise<void>>> = {
  files: filesSection,
  lookups: lookupsSection,
  servers: serversSection,
  volumes: volumesSection,
  move: moveSection,
  many: manySection,
};

const wanted = wantedOrExit(argumentsOf(process.argv.slice(2)), USAGE);
const report = new Report();
report.note(machineText(machineHere()));
for (const section of wanted.sections) await RUN[section](wanted, report);
report.note(`\n${report.text()}`);
