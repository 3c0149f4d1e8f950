"""Network between the hosts of a simulated fleet and its services.

`fleet_network.py POSTGRES_SOCKET EMBEDDER_PORT HOSTS`

Each host has two ports on loopback, one to Postgres and one to the embedder, with the delays and faults of its kind of
network. The first line on stdout is JSON with the pairs of ports, in the order of the hosts. The line `calm` on stdin
ends the faults, but not the delays, and is answered by `calm`; `connections` is answered by JSON with the most
connections to Postgres that each host had at a time. The process ends when stdin closes.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

CHUNK_BYTES = 1 << 16
AWAY_S_MAX, SAMPLE_S = 3.0, 0.25


@dataclass(frozen=True)
class Kind:
    """Delay of one way, mean time between faults that cut connections or stall them, and how long they stall."""

    delay_s: float
    cut_every_s: float = 0.0
    stall_every_s: float = 0.0
    stall_s: tuple[float, float] = (0.5, 6.0)


KINDS = {
    "near": Kind(0.0005),
    "far": Kind(0.03),
    "cut": Kind(0.005, cut_every_s=20.0),
    "stalled": Kind(0.005, stall_every_s=20.0),
}
# Of eight hosts four are near, two far, one on a network that cuts connections, one on a network that stalls.
ORDER = ("near", "far", "near", "cut", "near", "far", "near", "stalled")


def kind_of(host: int) -> str:
    return ORDER[host % len(ORDER)]


class Network:
    """The network of one host."""

    def __init__(self, host: int, postgres: str, embedder: int) -> None:
        self._kind, self._chance = KINDS[kind_of(host)], random.Random(host)
        self._postgres, self._embedder = postgres, embedder
        self._flows = asyncio.Event()
        self._flows.set()
        self._away_until = 0.0
        self._open: set[asyncio.StreamWriter] = set()
        self._connections = self._sampled = self.connections_max = 0

    async def listen(self) -> tuple[int, int]:
        """Open the two ports and begin the faults."""
        servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (self._to_postgres, self._to_embedder)]
        self.faults = [asyncio.create_task(fault) for fault in (self._cut(), self._stall())]
        first, second = (server.sockets[0].getsockname()[1] for server in servers)
        self._servers = servers
        return first, second

    def sample(self) -> None:
        """Count the connections to Postgres that the host holds, without those that just open or close."""
        self.connections_max = max(self.connections_max, min(self._sampled, self._connections))
        self._sampled = self._connections

    def calm(self) -> None:
        for fault in self.faults:
            fault.cancel()
        self._away_until = 0.0
        self._flows.set()

    async def _to_postgres(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            far = await asyncio.open_unix_connection(self._postgres)
            self._connections += 1
            await self._join(reader, writer, *far, self._closed)
        writer.close()

    def _closed(self) -> None:
        self._connections -= 1

    async def _to_embedder(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await self._join(reader, writer, *await asyncio.open_connection("127.0.0.1", self._embedder))
        writer.close()

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        """Carry both ways until one side has ended. `closed` is called when the host has closed its side."""
        ends = {writer, far_writer}
        self._open |= ends
        if asyncio.get_running_loop().time() < self._away_until:
            _abort(ends)
        ways = [
            asyncio.create_task(self._carry(reader, far_writer, closed)),
            asyncio.create_task(self._carry(far_reader, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        _abort(ends)
        await asyncio.gather(*ways, return_exceptions=True)
        self._open -= ends

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, closed: Callable[[], None] = lambda: None
    ) -> None:
        arrived: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.create_task(self._deliver(arrived, writer))
        now = asyncio.get_running_loop().time
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                arrived.put_nowait((now() + self._kind.delay_s, data))
        closed()
        arrived.put_nowait((now() + self._kind.delay_s, b""))
        await delivery

    async def _deliver(self, arrived: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        now = asyncio.get_running_loop().time
        with suppress(OSError):
            while True:
                due, data = await arrived.get()
                await asyncio.sleep(max(0.0, due - now()))
                await self._flows.wait()
                if not data:
                    return
                writer.write(data)
                await writer.drain()

    async def _cut(self) -> None:
        """Cut all connections now and then, and accept none for a while."""
        while self._kind.cut_every_s:
            await asyncio.sleep(self._chance.expovariate(1 / self._kind.cut_every_s))
            self._away_until = asyncio.get_running_loop().time() + self._chance.uniform(0, AWAY_S_MAX)
            _abort(self._open)

    async def _stall(self) -> None:
        """Carry nothing for a while now and then."""
        while self._kind.stall_every_s:
            await asyncio.sleep(self._chance.expovariate(1 / self._kind.stall_every_s))
            self._flows.clear()
            await asyncio.sleep(self._chance.uniform(*self._kind.stall_s))
            self._flows.set()


def _abort(ends: set[asyncio.StreamWriter]) -> None:
    for end in ends:
        end.transport.abort()


async def main(postgres: str, embedder: str, hosts: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    networks = [Network(host, postgres, int(embedder)) for host in range(int(hosts))]
    print(json.dumps([await network.listen() for network in networks]), flush=True)
    samples = asyncio.create_task(_sample(networks))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    async for line in lines:
        if line.strip() == b"calm":
            for network in networks:
                network.calm()
            print("calm", flush=True)
        else:
            print(json.dumps([network.connections_max for network in networks]), flush=True)
    samples.cancel()


async def _sample(networks: Sequence[Network]) -> None:
    while True:
        await asyncio.sleep(SAMPLE_S)
        for network in networks:
            network.sample()


if __name__ == "__main__":
    asyncio.run(main(*islice(sys.argv, 1, 4)))
