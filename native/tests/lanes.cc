// Runs every operation of one lanes header on values that bite and prints one digest per operation.
//
//   emel_lanes_ROUTE
//
// The output must be the same text for every route. Which NaN an arithmetic operation gives is the CPU's choice, so
// there all NaNs count as one; operations that move or convert bits are compared bit by bit.
#include <stdio.h>

#include EMEL_LANES_HEADER

namespace emel {
namespace {

constexpr size_t kNasty = 64;

volatile uint64_t seed = 1;  // read when the program runs: nothing is computed by the compiler
uint64_t state = seed;
uint32_t next_random() {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(state >> 32);
}

struct Digest {
  const char* name;
  uint64_t hash = 14695981039346656037u;
  explicit Digest(const char* name_) : name(name_) {}
  ~Digest() { printf("%s %016llx\n", name, static_cast<unsigned long long>(hash)); }
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  void add(uint64_t value) { hash = (hash ^ value) * 1099511628211u; }
  void bits(F32 a) {
    uint32_t lanes[16];
    f_store(reinterpret_cast<float*>(lanes), a);
    for (const uint32_t lane : lanes) add(lane);
  }
  void ints(I32 a) { bits(f_bits(a)); }
  void bytes(U8 a) {
    uint8_t all[sizeof a];
    memcpy(all, &a, sizeof a);
    for (const uint8_t byte : all) add(byte);
  }
  void value(F32 a) {
    uint32_t lanes[16];
    f_store(reinterpret_cast<float*>(lanes), a);
    for (const uint32_t lane : lanes) add((lane & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : lane);
  }
};

// Zeros, subnormals, ties of binary16, the ends of both formats, infinities, NaNs quiet and signalling; then random.
struct Nasty {
  uint32_t bits[kNasty] = {0x00000000, 0x00000001, 0x007fffff, 0x00800000, 0x33000000, 0x33000001, 0x33800000,
                           0x33c00000, 0x387fe000, 0x387ff000, 0x38800000, 0x38801000, 0x38803000, 0x3f800000,
                           0x3fc00000, 0x40200000, 0x477fe000, 0x477fefff, 0x477ff000, 0x47800000, 0x7f7fffff,
                           0x7f800000, 0x7f800001, 0x7fc00000, 0x7fc12345, 0x7fffffff};
  Nasty() {
    for (size_t i = 0; i < 26; ++i) bits[i] += static_cast<uint32_t>(seed - 1);
    for (size_t i = 26; i < 32; ++i) bits[i] = next_random();
    for (size_t i = 32; i < kNasty; ++i) bits[i] = bits[i - 32] | 0x80000000u;
  }
  F32 at(size_t i) const {
    uint32_t lanes[16];
    for (size_t lane = 0; lane < 16; ++lane) lanes[lane] = bits[(i + lane) % kNasty];
    return f_load(reinterpret_cast<const float*>(lanes));
  }
  F32 same(size_t i) const {
    float value;
    memcpy(&value, &bits[i], sizeof value);
    return f_set1(value);
  }
};

template <class Operation>
void add_pairs(Digest& digest, const Nasty& nasty, bool exact, Operation operation) {
  for (size_t i = 0; i < kNasty; i += 16) {
    for (size_t j = 0; j < kNasty; ++j) {
      const F32 result = operation(nasty.at(i), nasty.same(j));
      exact ? digest.bits(result) : digest.value(result);
    }
  }
}

template <class Operation>
void pairs(const char* name, const Nasty& nasty, bool exact, Operation operation) {
  Digest digest(name);
  add_pairs(digest, nasty, exact, operation);
}

void floats(const Nasty& nasty) {
  pairs("f_add", nasty, false, [](F32 a, F32 b) { return f_add(a, b); });
  pairs("f_sub", nasty, false, [](F32 a, F32 b) { return f_sub(a, b); });
  pairs("f_mul", nasty, false, [](F32 a, F32 b) { return f_mul(a, b); });
  pairs("f_div", nasty, false, [](F32 a, F32 b) { return f_div(a, b); });
  pairs("f_max", nasty, true, [](F32 a, F32 b) { return f_max(a, b); });
  pairs("f_min", nasty, true, [](F32 a, F32 b) { return f_min(a, b); });
  Digest fma("f_fma");
  for (size_t k = 0; k < kNasty; ++k) {
    const F32 c = nasty.same(k);
    add_pairs(fma, nasty, false, [c](F32 a, F32 b) { return f_fma(a, b, c); });
  }
  Digest mask("f_equal_mask");
  for (size_t i = 0; i < kNasty; ++i) {
    for (size_t j = 0; j < kNasty; ++j) mask.add(f_equal_mask(nasty.at(i), nasty.same(j)));
  }
}

void partial() {
  Digest digest("f_load_n f_store_n");
  Digest blend("f_first_n f_swap_pairs");
  for (int n = 0; n <= 16; ++n) {
    float from[16];
    float to[32];
    for (int i = 0; i < 16; ++i) from[i] = static_cast<float>(i + 1);
    for (int i = 0; i < 32; ++i) to[i] = -1.0f;
    const F32 loaded = f_load_n(from, n);
    digest.bits(loaded);
    f_store_n(to, f_load(from), n);
    digest.bits(f_load(to));
    digest.bits(f_load(to + 16));
    blend.bits(f_first_n(f_load(from), f_load(to + 16), n));
    blend.bits(f_swap_pairs(loaded));
  }
}

void conversions(const Nasty& nasty) {
  {
    Digest load("f_load_f16");
    Digest widen("f_load_bf16");
    for (uint32_t half = 0; half < 65536; half += 16) {
      uint16_t lanes[16];
      for (uint32_t lane = 0; lane < 16; ++lane) lanes[lane] = static_cast<uint16_t>(half + lane);
      load.bits(f_load_f16(lanes));
      widen.bits(f_load_bf16(lanes));
    }
  }
  Digest store("f_store_f16");
  uint16_t halves[16];
  const auto add_halves = [&](F32 a) {
    f_store_f16(halves, a);
    for (const uint16_t half : halves) store.add(half);
  };
  for (size_t i = 0; i < kNasty; i += 16) add_halves(nasty.at(i));
  for (int round = 0; round < 20000; ++round) {
    uint32_t lanes[16];
    for (uint32_t& lane : lanes) lane = next_random();
    add_halves(f_load(reinterpret_cast<const float*>(lanes)));  // of any size
    for (uint32_t& lane : lanes) lane = (lane & 0x8fffffffu) + 0x32000000u + (lane & 7u) * 0x02000000u;
    add_halves(f_load(reinterpret_cast<const float*>(lanes)));  // of a half's
  }
  Digest round("i_round");
  for (int i = -4194304; i <= 4194304 - 16; i += 1016) {
    float lanes[16];
    for (int lane = 0; lane < 16; ++lane) lanes[lane] = static_cast<float>(i + lane) * 0.5f;
    round.ints(i_round(f_load(lanes)));
    for (float& lane : lanes) lane *= 0.9990234375f;
    round.ints(i_round(f_load(lanes)));
  }
}

I32 random_ints() {
  uint32_t lanes[16];
  for (uint32_t& lane : lanes) lane = next_random();
  return i_bits(f_load(reinterpret_cast<const float*>(lanes)));
}

void integers() {
  Digest arithmetic("i_add i_sub i_and i_max i_shl i_shr f_from_i");
  Digest reduce("i_reduce_add i_reduce_max i_store_i8");
  for (int round = 0; round < 1000; ++round) {
    const I32 a = random_ints();
    const I32 b = round == 0 ? i_set1(INT32_MIN) : random_ints();
    arithmetic.ints(i_and(a, b));
    arithmetic.ints(i_max(a, b));
    const I32 small = i_and(a, i_set1(0xffffff));
    arithmetic.ints(i_sub(i_add(small, i_set1(round)), i_and(b, i_set1(0xffff))));
    arithmetic.ints(i_shl<0>(a));
    arithmetic.ints(i_shl<7>(a));
    arithmetic.ints(i_shl<23>(a));
    arithmetic.ints(i_shr<2>(a));
    arithmetic.ints(i_shr<6>(a));
    arithmetic.bits(f_from_i(a));
    reduce.add(static_cast<uint32_t>(i_reduce_add(small)));
    reduce.add(static_cast<uint32_t>(i_reduce_max(a)));
    int8_t bytes[16];
    i_store_i8(bytes, i_sub(i_and(a, i_set1(255)), i_set1(128)));
    for (const int8_t byte : bytes) reduce.add(static_cast<uint8_t>(byte));
  }
}

void bytes() {
  Digest load("f_load_i8 f_load_u8 f_load_nibbles f_load_twice");
  Digest planes("u_mask u_or u_shift u_lookup");
  uint8_t all[256 + 64];
  for (size_t i = 0; i < sizeof all; ++i) all[i] = static_cast<uint8_t>(i);
  for (size_t at = 0; at < 256; ++at) {
    load.bits(f_load_i8(all + at));
    load.bits(f_load_u8(all + at));
    load.bits(f_load_low_nibbles(all + at));
    load.bits(f_load_high_nibbles(all + at));
    float eight[8];
    memcpy(eight, all + at, sizeof eight);
    load.bits(f_load_twice(eight));
    const U8 a = u_load(all + at);
    planes.bytes(u_mask(a, 15));
    planes.bytes(u_or(a, u_load(all + 255 - at)));
    planes.bytes(u_shift_right<0>(a, 48));
    planes.bytes(u_shift_right<1>(a, 16));
    planes.bytes(u_shift_right<6>(a, 3));
    planes.bytes(u_shift_left<0>(a, 4));
    planes.bytes(u_shift_left<2>(a, 48));
    planes.bytes(u_shift_left<4>(a, 16));
    planes.bytes(u_lookup(all + at, u_mask(a, 15)));
  }
}

#if defined(EMEL_JOINS_PLANES)
// 32 values of each token, from two planes into the one order that these lanes take them in.
template <size_t kTokens, size_t kStride, size_t kLowAt>
void join_planes(int8_t (&a)[kTokens * kStride]) {
  for (size_t t = 0; t < kTokens; ++t) {
    int8_t* token = a + t * kStride;
    float q[2][16];
    for (size_t i = 0; i < 32; ++i) {
      const int32_t joined = 255 * token[i] + token[kLowAt + i];
      memcpy(&q[i / 16][i % 16], &joined, sizeof joined);
    }
    for (size_t half = 0; half < 2; ++half) store_joined(token + 32 * half, i_bits(f_load(q[half])));
  }
}
#endif

// Tokens in tiles of T: whatever T is, the digest is the same.
template <int kPlanes, int T, int kBits, int kFirst, int kCount>
void dots() {
  constexpr size_t kTokens = 8;
  constexpr size_t kStride = 128;
  constexpr size_t kLowAt = 48;
  char name[64];
  snprintf(name, sizeof name, "dot %d planes, %d bits, from group %d, %d groups", kPlanes, kBits, kFirst, kCount);
  Digest digest(name);
  state = seed;
  for (int round = 0; round < 200; ++round) {
    uint8_t weights[8][64];
    for (auto& group : weights) {
      for (uint8_t& w : group) {
        const uint32_t r = next_random();
        w = static_cast<uint8_t>(round % 4 == 0 ? (1u << kBits) - 1u : r & ((1u << kBits) - 1u));
      }
    }
    int8_t a[kTokens * kStride];
    for (int8_t& x : a) {
      const int r = static_cast<int>(next_random() % 255) - 127;
      x = static_cast<int8_t>(round % 3 == 0 ? 127 : round % 3 == 1 ? -127 : r);
    }
#if defined(EMEL_JOINS_PLANES)
    if constexpr (kPlanes == 2) join_planes<kTokens, kStride, kLowAt>(a);
#endif
    U8 w[8];
    for (int j = 0; j < 8; ++j) w[j] = u_load(weights[j]);
    for (size_t t = 0; t < kTokens; t += T) {
      I32 out[T];
      dot_planes<kPlanes, T, kBits, kFirst, kCount>(w, a + t * kStride, kLowAt, kStride, out);
      for (const I32& sum : out) digest.ints(sum);
    }
    digest.ints(dot_single<kPlanes, kBits, kFirst, kCount>(w, a, kLowAt));
  }
}

template <int T, int kBits>
void dots_of() {
  dots<1, T, kBits, 0, 8>();
  dots<1, T, kBits, 0, 4>();
  dots<1, T, kBits, 4, 4>();
  dots<2, T, kBits, 0, 8>();
  dots<2, T, kBits, 0, 4>();
  dots<2, T, kBits, 4, 4>();
}

template <int T>
void dots_in_tiles() {
  dots_of<T, 2>();
  dots_of<T, 3>();
  dots_of<T, 4>();
  dots_of<T, 5>();
  dots_of<T, 6>();
  dots_of<T, 8>();
}

}  // namespace
}  // namespace emel

int main() {
  const emel::Nasty nasty;
  emel::floats(nasty);
  emel::partial();
  emel::conversions(nasty);
  emel::integers();
  emel::bytes();
  emel::dots_in_tiles<1>();
  emel::dots_in_tiles<2>();
  emel::dots_in_tiles<emel::kTileTokens>();
  return 0;
}
