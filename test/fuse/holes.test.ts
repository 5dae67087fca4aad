import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { overTransports, type TestMount } from './mounted.ts';

const runProgram = promisify(execFile);

/**
 * Goal: holes, searches for data and copies work as on a local disk.
 * Method: programs of the system and calls of Python's `os`, on a mount of a volume in memory whose objects have 1
 * MiB.
 */
/** Runs a Python program in the directory of the mount, and asserts that it exits with 0. */
async function python(mount: TestMount, program: string): Promise<string> {
  const { stdout, stderr, code } = await mount.shell(`python3 -c '${program}'`);
  assert.equal(code, 0, stderr);
  return stdout.trim();
}

overTransports('a punched hole reads as zeros, keeps the size, and SEEK_HOLE finds it', async (start) => {
  const mount = await start();
  const said = await python(
    mount,
    `
import os
M = 1 << 20
with open("f", "wb") as f: f.write(b"x" * (4 * M))
assert os.system("fallocate -p -o 1048576 -l 2097152 f") == 0
fd = os.open("f", os.O_RDWR)
data = os.read(fd, 5 * M)
assert data == b"x" * M + bytes(2 * M) + b"x" * M, "contents"
found = [os.lseek(fd, at, how) for at, how in
         ((0, os.SEEK_DATA), (0, os.SEEK_HOLE), (M + 5, os.SEEK_HOLE), (M + 5, os.SEEK_DATA), (3 * M, os.SEEK_HOLE))]
print(found)
for how in (os.SEEK_DATA, os.SEEK_HOLE):
    try: os.lseek(fd, 4 * M, how); raise SystemExit("found what is not there")
    except OSError as error: assert error.errno == 6, error
`,
  );
  const M = 1024 * 1024;
  assert.equal(said, `[0, ${M}, ${M + 5}, ${3 * M}, ${4 * M}]`);
});

overTransports(
  'the blocks of a file are those of its data, and never 0 while data is being sent',
  async (start) => {
    const mount = await start();
    await python(
      mount,
      `
import os
M = 1 << 20
def sectors(path): return os.stat(path).st_blocks
fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_EXCL)
os.ftruncate(fd, 8 * M)
assert os.fstat(fd).st_blocks == 0, os.fstat(fd)
os.pwrite(fd, b"x" * M, 4 * M)
assert sectors("f") == 2048, "one of eight is data: %d" % sectors("f")
os.pwrite(fd, b"x" * (2 * M), M)
os.close(fd)
assert sectors("f") == 3 * 2048, sectors("f")
assert os.system("fallocate -p -o 1048576 -l 1048576 f") == 0
assert sectors("f") == 2 * 2048, sectors("f")
os.truncate("f", 16 * M)
assert sectors("f") == 2 * 2048, sectors("f")
os.truncate("f", M)
assert sectors("f") == 0, sectors("f")
with open("g", "wb") as g: g.write(b"x" * 1000)
assert sectors("g") == 2, sectors("g")
assert os.system("cp --sparse=always f h && cp h i") == 0
assert (sectors("h"), sectors("i")) == (0, 0), (sectors("h"), sectors("i"))
`,
    );
    await mount.shell('truncate -s 8M k');
    await mount.disturb({ delayMs: 1_500 });
    const program = `
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, b"x", 5 << 20)
print(os.fstat(fd).st_blocks)`;
    // Not in the mount's directory, where its start is a hundred calls.
    const { stdout } = await runProgram('python3', ['-c', program, mount.path('k')], { cwd: '/' });
    await mount.disturb({ delayMs: 0 });
    assert.ok(Number(stdout) > 0, stdout);
  },
);

overTransports('what was written a moment ago is found before it has arrived', async (start) => {
  const mount = await start();
  await mount.disturb({ delayMs: 100 });
  const said = await python(
    mount,
    `
import os
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 8 << 20)
os.pwrite(fd, b"x", 5 << 20)
print(os.lseek(fd, 0, os.SEEK_DATA))
`,
  );
  assert.equal(said, String(5 * 1024 * 1024));
});

overTransports(
  'fallocate zeroes ranges with and without a change of the size, and refuses other modes',
  async (start) => {
    const mount = await start();
    await python(
      mount,
      `
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
def allocate(fd, mode, at, length):
    done = libc.fallocate(fd, mode, ctypes.c_long(at), ctypes.c_long(length))
    return ctypes.get_errno() if done != 0 else 0
fd = os.open("f", os.O_RDWR | os.O_CREAT)
os.write(fd, b"x" * 100)
assert allocate(fd, 16, 50, 100) == 0
assert os.pread(fd, 200, 0) == b"x" * 50 + bytes(100)
assert allocate(fd, 17, 20, 1000) == 0
assert os.pread(fd, 200, 0) == b"x" * 20 + bytes(130)
assert allocate(fd, 0, 100, 400) == 0 and os.fstat(fd).st_size == 500
assert allocate(fd, 0, 0, 400) == 0 and os.fstat(fd).st_size == 500
assert allocate(fd, 1, 0, 4000) == 0 and os.fstat(fd).st_size == 500
assert os.pread(fd, 500, 0) == b"x" * 20 + bytes(480)
EOPNOTSUPP, ENOSPC = 95, 28
for mode in (2, 8, 9, 32, 64): assert allocate(fd, mode, 0, 4096) == EOPNOTSUPP, mode
assert allocate(fd, 0, 0, 1 << 40) == ENOSPC
assert os.fstat(fd).st_size == 500
`,
    );
  },
);

overTransports('a copy between files is made by the servers, and keeps holes', async (start) => {
  const mount = await start();
  await python(
    mount,
    `
import os
M = 1 << 20
with open("f", "wb") as f:
    f.write(b"a" * (M + 5)); f.seek(9 * M); f.write(b"b" * 100)
source, target = os.open("f", os.O_RDONLY), os.open("t", os.O_RDWR | os.O_CREAT)
os.pwrite(target, b"under way", 0)
left, at = os.fstat(source).st_size, 0
while left > 0:
    done = os.copy_file_range(source, target, left, at, at)
    assert done > 0
    at += done; left -= done
assert open("f", "rb").read() == open("t", "rb").read()
print(os.lseek(target, 2 * M, os.SEEK_DATA))
assert os.lseek(target, 2 * M, os.SEEK_DATA) == 9 * M
# Within one file, where the ranges do not overlap.
assert os.copy_file_range(target, target, 100, 0, 9 * M + 50) == 100
assert os.pread(target, 200, 9 * M) == b"b" * 50 + b"a" * 100
try: os.copy_file_range(target, target, 100, 0, 50); raise SystemExit("copied over itself")
except OSError as error: assert error.errno == 22, error
assert os.copy_file_range(source, target, 100, 20 * M, 0) == 0
`,
  );
  const { calls } = await mount.report();
  assert.ok((calls.copyFrom ?? 0) > 0, 'The servers were asked to copy');
});

overTransports('cp copies files with holes in each of its modes', async (start) => {
  const mount = await start();
  const { code, stderr } = await mount.shell(`
    truncate -s 20M f && printf begin | dd of=f conv=notrunc 2>/dev/null &&
    printf middle | dd of=f bs=1 seek=7000000 conv=notrunc 2>/dev/null &&
    for how in --sparse=always --sparse=never --sparse=auto --reflink=auto; do
      cp $how f t && cmp f t || exit 1
    done`);
  assert.equal(code, 0, stderr);
});
