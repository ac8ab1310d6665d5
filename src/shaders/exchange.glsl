// An exchange with the host in the middle of a submission (backend/gpu/device/host_signal.h):
// sends the host `count` floats, waits until it opens the gate, and reads the floats that the host
// has written. Runs in one workgroup, and waits only for the host. If that takes more polls than
// remain for the submission, it abandons the submission: the following kernels do nothing
// (guard.glsl).
#extension GL_KHR_memory_scope_semantics : require

layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer Words { uint at[]; };
#include "peers.glsl"
// Arguments start with these (Gate::Head).
#define EXCHANGE_ARGS                                            \
    Words gate;                /* of the host: the words below */ \
    Floats part;                                                 \
    Shared to_host, from_host; /* from_host: in the inbox */      \
    uint count, index;         /* see IndexOf */

// Words of the gate, written by kernels, one cache line each.
const uint kArrived = 0, kGaveUp = 16;
// Words of the inbox, before the host's data; the host writes all except kOpen once.
const uint kInboxBytes = 256;
const uint kOpen = 0, kBase = 16, kMostPolls = 17, kStateLow = 18, kStateHigh = 19;
const uint kWindowsLow = 20, kWindowsHigh = 21;  // of this submission: PeerSums::table
// Words of the device's state: the guard's stop word, and the polls of this submission so far.
const uint kStop = 0, kPolls = 1;
const uint kAtOnce = 4096;  // the longest loop

shared bool exchange_opened;

uint Load(Words gate, uint word) {
    return atomicLoad(gate.at[word], gl_ScopeDevice, gl_StorageSemanticsBuffer,
                      gl_SemanticsAcquire);
}
void Store(Words gate, uint word, uint value) {
    atomicStore(gate.at[word], value, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                gl_SemanticsRelease);
}
void Fence() {
    memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease);
}

bool Await(Words gate, Words inbox, uint index) {
    Words state = Words(uint64_t(inbox.at[kStateHigh]) << 32 | uint64_t(inbox.at[kStateLow]));
    const uint number = Load(inbox, kBase) + index;
    Store(gate, kArrived, number);
    const uint most = inbox.at[kMostPolls], before = state.at[kPolls];
    const uint left = most - min(most, before);
    uint polls = 0;
    bool open = false;
    for (uint i = 0; i < 60000 && !open && polls < left; ++i) {
        for (uint j = 0; j < kAtOnce && !open && polls < left; ++j) {
            ++polls;
            open = int(Load(inbox, kOpen) - number) >= 0;
        }
    }
    state.at[kPolls] = before + polls;
    if (!open) {
        state.at[kStop] = 1;
        Store(gate, kGaveUp, index);
    }
    return open;
}

// The lowest bits of `index` are the exchange's number. If the sum is read from the ranks' windows
// (peers.glsl), the next bits are the number of ranks, and the highest ones the half of the windows.
uint IndexOf(uint index) {
    return index & 0xffff;
}
uint RanksOf(uint index) {
    return index >> 16 & 0xff;
}
Windows WindowsOf(Words inbox, uint index) {
    const uint64_t table =
        uint64_t(inbox.at[kWindowsHigh]) << 32 | uint64_t(inbox.at[kWindowsLow]);
    return Windows(table + 8 * RanksOf(index) * (index >> 24));
}

// Returns false if the submission is abandoned. Each invocation writes every gl_WorkGroupSize.x-th
// float of `sum`.
bool Exchange(Words gate, Floats part, Shared to_host, Shared from_host, uint count, uint index,
              Floats sum) {
    const uint lane = gl_LocalInvocationIndex;
    for (uint i = lane; i < count; i += gl_WorkGroupSize.x) to_host.at[i] = part.at[i];
    Fence();
    barrier();
    Words inbox = Words(uint64_t(from_host) - kInboxBytes);
    if (lane == 0) exchange_opened = Await(gate, inbox, IndexOf(index));
    barrier();
    Fence();
    if (!exchange_opened) return false;
    const uint ranks = RanksOf(index);
    if (ranks == 0) {
        for (uint i = lane; i < count; i += gl_WorkGroupSize.x) sum.at[i] = from_host.at[i];
        return true;
    }
    Windows windows = WindowsOf(inbox, index);
    for (uint i = lane; i < count; i += gl_WorkGroupSize.x) {
        sum.at[i] = SumOfWindows(windows, ranks, i);
    }
    return true;
}
