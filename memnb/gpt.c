/* Tiny GPT-2s on a CPU: training and scoring in float32; where weights are seen in bfloat16, steps may take their
   products in it, with sums in float32.

   The optional engine behind memnb.gpt.fit, which compiles this file at first use and checks it against torch.
   All weights of a model lie in one vector, in the order of engine.parts: wte (V x d), wpe (S x d), then for each layer
   ln1 (g, b), qkv (d x 3d, b), proj (d x d, b), ln2 (g, b), fc (d x 4d, b), out (4d x d, b), and the last norm (g, b).
   A sequence of n tokens is worked through alone, so that its activations stay in the cache. Position t reads token
   t-1 and predicts token t; position 0 reads none. d and the head width must be multiples of 8. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- how wide a vector is ----
   A vector is as wide as a register of the processor that this is compiled for. A wider one would have no register:
   compilers then keep it in memory, and everything is twenty times slower. WIDTH, in bytes, can be given to try another.
   No number depends on it: each is summed up in an order that is the same for all widths (so the compiler must not
   change it: no -fassociative-math). Only processors that round between a product and its sum (x86 before AVX2) differ
   from the others in the last bits. */
#ifndef WIDTH
#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16                   /* SSE, NEON */
#endif
#endif
#if defined(__SSE2__)
#include <immintrin.h>
#endif
#if WIDTH == 64 && defined(__AVX512F__) && defined(__has_include)
#if __has_include(<avx512bf16intrin.h>)
#define HAS_DOTS                   /* the compiler knows the dot products of bfloat16 */
#endif
#endif
enum { W = WIDTH/4 };              /* numbers in a vector */

#define INLINE static inline __attribute__((always_inline))
#define PW 64                      /* tokens of the vocabulary in a panel */
typedef float vf __attribute__((vector_size(WIDTH), aligned(4)));
typedef int32_t vi __attribute__((vector_size(WIDTH), aligned(4)));
typedef float v8 __attribute__((vector_size(32), aligned(4)));

/* ---- small matrix products: C (M x N, rows cr apart) = [plus] + A B ----
   Element (m, k) of A lies at a[m*ar + k*ak], so A may be a transpose; rows of B are bk apart, or, where bk is 0, B is
   packed: stripes of two vectors, the rows of each without a gap, then one of a vector and one of 8 numbers. Rows of
   plus are pr apart. Each number is summed up over k in order, whatever the tile. N is a multiple of 8.

   A tile of C stays in registers over all k. Each step of k reads a row of B once and multiplies it with a number of A
   for each row of the tile, so that a high and wide tile reads least for its work. It is two vectors wide, and as high
   as there are registers: six rows are 12 of the 16 of AVX2 or SSE, beside two for B and one for A, and enough that no
   sum waits for the one before (two sums begin in each clock, and end four later: 8 at least). With 32 registers (AVX-512,
   NEON) 8 rows. Where C is one vector wide a tile has up to 8 rows, for the same 8 sums. */

#if defined(__AVX512F__) || defined(__aarch64__)
enum { HIGH = 8 };                 /* rows of a tile of two vectors */
#else
enum { HIGH = 6 };
#endif

#define ROWS1(DO) DO(0)
#define ROWS2(DO) ROWS1(DO) DO(1)
#define ROWS3(DO) ROWS2(DO) DO(2)
#define ROWS4(DO) ROWS3(DO) DO(3)
#define ROWS5(DO) ROWS4(DO) DO(4)
#define ROWS6(DO) ROWS5(DO) DO(5)
#define ROWS7(DO) ROWS6(DO) DO(6)
#define ROWS8(DO) ROWS7(DO) DO(7)
#define ZERO(r) VEC s##r = {0}, t##r = {0};
#define SOON(r) __builtin_prefetch(plus + r*pr); if (C == 2) __builtin_prefetch(plus + r*pr + sizeof(VEC)/4);
#define MULT(r) { float e = a[r*ar + k*ak]; s##r += e*x; if (C == 2) t##r += e*y; }
#define SAVE(r) {                                                                                                \
    VEC *o = (VEC *)(c + r*cr);                                                                                  \
    o[0] = plus ? *(const VEC *)(plus + r*pr) + s##r : s##r;                                                     \
    if (C == 2) o[1] = plus ? *(const VEC *)(plus + r*pr + sizeof(VEC)/4) + t##r : t##r;                         \
}
typedef void tile(long K, const float *a, long ar, long ak, const float *b, long bk, float *c, long cr,
                  const float *plus, long pr);
/* R rows of C, one or two vectors wide, kept in registers over all k; what they are added to is fetched meanwhile.
   Four steps of k are written out, since loops are as short as a head is wide: with AVX2 a training is then 3 to 8 %
   faster. */
#define TILE(NAME, T, WIDTH, R, HOW, MULT)                                                                       \
HOW static void NAME##R(long K, const float *a, long ar, long ak, const float *b, long bk, float *c, long cr,        \
                    const float *plus, long pr) {                                                                \
    typedef T VEC; enum { C = WIDTH };                                                                           \
    if (plus) { ROWS##R(SOON) }                                                                                  \
    ROWS##R(ZERO)                                                                                                \
    _Pragma("GCC unroll 4")                                                                                      \
    for (long k = 0; k < K; k++) {                                                                               \
        VEC x = *(VEC *)(b + k*bk), y = C == 2 ? *(VEC *)(b + k*bk + sizeof(VEC)/4) : x;                         \
        ROWS##R(MULT)                                                                                            \
    }                                                                                                            \
    ROWS##R(SAVE)                                                                                                \
}
#define TILES(NAME, T, C, H, M)                                                                                  \
TILE(NAME, T, C, 1, H, M) TILE(NAME, T, C, 2, H, M) TILE(NAME, T, C, 3, H, M) TILE(NAME, T, C, 4, H, M)          \
TILE(NAME, T, C, 5, H, M) TILE(NAME, T, C, 6, H, M) TILE(NAME, T, C, 7, H, M) TILE(NAME, T, C, 8, H, M)          \
static tile *const NAME[] = {0, NAME##1, NAME##2, NAME##3, NAME##4, NAME##5, NAME##6, NAME##7, NAME##8};
TILES(wide, vf, 2, , MULT) TILES(half, vf, 1, , MULT) TILES(slim, v8, 1, , MULT)

/* Columns of the next stripe, of N that are left */
INLINE int stripe(int N) { return N >= 2*W ? 2*W : N >= W ? W : 8; }

INLINE void by_tiles(tile *const *wide, tile *const *half, tile *const *slim, int M, int N, int K, const float *a,
                     long ar, long ak, const float *b, long bk, float *c, long cr, const float *plus, long pr) {
    for (int n = 0, w; n < N; n += w) {
        w = stripe(N - n);
        int most = w == 2*W ? HIGH : 8;
        tile *const *of = w == 2*W ? wide : w == W ? half : slim;
        const float *from = bk ? b + n : b + (long)n*K;
        for (int m = 0, r; m < M; m += r) {
            r = M - m >= 2*most ? most : M - m > most ? (M - m + 1)/2 : M - m; /* no tile of few rows at the end */
            of[r](K, a + m*ar, ar, ak, from, bk ? bk : w, c + m*cr + n, cr, plus ? plus + m*pr + n : 0, pr);
        }
    }
}

static void product(int M, int N, int K, const float *a, long ar, long ak, const float *b, long bk, float *c, long cr,
                    const float *plus, long pr) {
    by_tiles(wide, half, slim, M, N, K, a, ar, ak, b, bk, c, cr, plus, pr);
}

static void gemm(int M, int N, int K, const float *a, int ar, int ak, const float *b, int bk, float *c, int cr,
                 int add) {
    product(M, N, K, a, ar, ak, b, bk, c, cr, add ? c : 0, cr);
}

/* A (rows x cols) or its transpose, packed. A stripe of two vectors, as most are, has a copy of the loop whose length
   the compiler knows: else each row is a call of memcpy. */
INLINE void pack_stripe(int rows, int cols, int w, const float *a, float *out) {
    for (long k = 0; k < rows; k++) memcpy(out + k*w, a + k*cols, w*4);
}
static void pack(int rows, int cols, const float *a, float *out) {
    for (int n = 0, w; n < cols; n += w, out += (long)rows*w) {
        w = stripe(cols - n);
        if (w == 2*W) pack_stripe(rows, cols, 2*W, a + n, out);
        else pack_stripe(rows, cols, w, a + n, out);
    }
}
static void pack_turned(int rows, int cols, const float *a, float *out) {
    for (int n = 0, w; n < rows; n += w) {
        w = stripe(rows - n);
        for (long k = 0; k < cols; k++, out += w) for (long j = 0; j < w; j++) out[j] = a[(n + j)*cols + k];
    }
}

/* ---- the same products of bfloat16, two steps of k at a time and with sums in float32, where the processor has them.
   Two numbers that follow each other in k make a pair and lie in the place of one float: M x N = A B of pairs, K/2 of
   them. Numbers are rounded to the nearest, ties to even, subnormal ones to 0. ---- */

#ifdef HAS_DOTS
#define DOTS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define MULT16(r) { __m512 e = _mm512_set1_ps(a[r*ar + k*ak]);                                                   \
    s##r = (vf)_mm512_dpbf16_ps((__m512)s##r, (__m512bh)e, (__m512bh)x);                                         \
    if (C == 2) t##r = (vf)_mm512_dpbf16_ps((__m512)t##r, (__m512bh)e, (__m512bh)y); }
#define MULT8(r) s##r = (v8)_mm256_dpbf16_ps((__m256)s##r, (__m256bh)_mm256_set1_ps(a[r*ar + k*ak]), (__m256bh)x);
TILES(wide16, vf, 2, DOTS, MULT16) TILES(half16, vf, 1, DOTS, MULT16) TILES(slim16, v8, 1, DOTS, MULT8)

static void product16(int M, int N, int K, const float *a, long ar, long ak, const float *b, long bk, float *c,
                      long cr, const float *plus, long pr) {
    by_tiles(wide16, half16, slim16, M, N, (K + 1)/2, a, ar, ak, b, bk, c, cr, plus, pr);
}

/* n numbers as pairs of neighbours; n is a multiple of 8 */
DOTS static void in_rows(long n, const float *x, float *out) {
    long i = 0;
    for (; i + 32 <= n; i += 32)
        _mm512_storeu_si512(out + i/2, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + 16),
                                                                    _mm512_loadu_ps(x + i)));
    for (; i < n; i += 8)
        _mm_storeu_si128((__m128i *)(out + i/2), (__m128i)_mm256_cvtneps_pbh(_mm256_loadu_ps(x + i)));
}

/* Rows 2i and 2i + 1 as a row of pairs; the last of an odd number with zeros. cols is a multiple of 8 */
DOTS static void in_pairs(int rows, int cols, const float *x, float *out) {
    for (int i = 0; i < rows; i += 2, x += 2*cols, out += cols) for (int j = 0; j < cols; j += 8) {
        __m512 both = _mm512_castps256_ps512(_mm256_loadu_ps(x + j));
        both = _mm512_insertf32x8(both, i + 1 < rows ? _mm256_loadu_ps(x + cols + j) : _mm256_setzero_ps(), 1);
        __m256i y = (__m256i)_mm512_cvtneps_pbh(both);
        __m128i a = _mm256_castsi256_si128(y), b = _mm256_extracti128_si256(y, 1);
        _mm_storeu_si128((__m128i *)(out + j), _mm_unpacklo_epi16(a, b));
        _mm_storeu_si128((__m128i *)(out + j + 4), _mm_unpackhi_epi16(a, b));
    }
}

/* Rows of m numbers, N apart, times scale; m is a multiple of 16. As pairs of neighbours, rows N/2 apart, and rows 2i
   and 2i + 1 as a row of pairs, N apart */
DOTS static void in_both(int rows, int m, int N, const float *x, const float *scale, float *row, float *pair) {
    static const int16_t zip[] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                  8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i order = _mm512_loadu_si512(zip);
    for (int i = 0; i < rows; i += 2, x += 2*N, row += N, pair += N) for (int j = 0; j < m; j += 16) {
        __m512 k = _mm512_loadu_ps(scale + j), a = _mm512_mul_ps(_mm512_loadu_ps(x + j), k);
        __m512 b = i + 1 < rows ? _mm512_mul_ps(_mm512_loadu_ps(x + N + j), k) : _mm512_setzero_ps();
        __m512i y = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        _mm256_storeu_si256((__m256i *)(row + j/2), _mm512_castsi512_si256(y));
        _mm256_storeu_si256((__m256i *)(row + N/2 + j/2), _mm512_extracti64x4_epi64(y, 1));
        _mm512_storeu_si512(pair + j, _mm512_permutexvar_epi16(order, y));
    }
}

/* Whether steps can take products of bfloat16 here. */
int dots(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512dq")
        && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#else
static void product16(int M, int N, int K, const float *a, long ar, long ak, const float *b, long bk, float *c,
                      long cr, const float *plus, long pr) {}
static void in_rows(long n, const float *x, float *out) {}
static void in_pairs(int rows, int cols, const float *x, float *out) {}
static void in_both(int rows, int m, int N, const float *x, const float *scale, float *row, float *pair) {}
int dots(void) { return 0; }
#endif

/* ---- exp, to float precision ---- */

INLINE vf pick(vi yes, vf a, vf b) { return (vf)((yes & (vi)a) | (~yes & (vi)b)); }
INLINE vf all(float x) { return x + (vf){0}; }

#if WIDTH == 64 && defined(__AVX512F__)     /* these in one operation each */
#define OF(name, ...) (vf)_mm512_##name##_ps(__VA_ARGS__)
typedef __m512 reg;
#elif WIDTH == 32 && defined(__AVX__)
#define OF(name, ...) (vf)_mm256_##name##_ps(__VA_ARGS__)
typedef __m256 reg;
#elif WIDTH == 16 && defined(__SSE2__)
#define OF(name, ...) (vf)_mm_##name##_ps(__VA_ARGS__)
typedef __m128 reg;
#endif
#ifdef OF
INLINE vf smaller(vf a, vf b) { return OF(min, (reg)a, (reg)b); }
INLINE vf larger(vf a, vf b) { return OF(max, (reg)a, (reg)b); }
INLINE vf root(vf x) { return OF(sqrt, (reg)x); }
#else
INLINE vf smaller(vf a, vf b) { return pick(b > a, a, b); }
INLINE vf larger(vf a, vf b) { return pick(a > b, a, b); }
INLINE vf root(vf x) {
    for (int i = 0; i < W; i++) x[i] = sqrtf(x[i]);
    return x;
}
#endif

INLINE vf power(vf z, vf half) {   /* of two, z from -126 to 126, half with the sign of z */
    vi n = __builtin_convertvector(z + half, vi);
    vf f = z - __builtin_convertvector(n, vf);
    vf p = f*1.54035304e-4f + 1.33335581e-3f;
    p = p*f + 9.61812911e-3f;
    p = p*f + 5.55041087e-2f;
    p = p*f + 2.40226507e-1f;
    p = p*f + 6.93147181e-1f;
    p = p*f + 1.f;
    return (vf)((vi)p + (n << 23));
}
INLINE vf vexp(vf x) {
    vf z = larger(all(-126.f), smaller(all(126.f), x*1.44269504f));
    return power(z, (vf)(((vi)z & INT32_MIN) | (vi)all(.5f)));
}
INLINE vf vexp_down(vf x, float scale) { return power(larger(all(-126.f), x*(scale*1.44269504f)), all(-.5f)); } /* of x <= 0 */

/* Sums of sixteen vectors, in an order that is always the same. */
INLINE vf sum_of_pairs(const vf *a) {
    vf b[8], c[4];
    for (int i = 0; i < 8; i++) b[i] = a[2*i + 1] + a[(2*i + 2)%16];
    for (int i = 0; i < 4; i++) c[i] = b[2*i] + b[2*i + 1];
    return c[0] + c[1] + c[2] + c[3];
}
INLINE vf sum_of_halves(vf *a) {
    for (int k = 8; k; k /= 2) for (int i = 0; i < k; i++) a[i] += a[i + k];
    return a[0];
}
INLINE float sum8(v8 a) { return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])); }
static const int32_t LANE[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
INLINE vi from(int r) { return *(const vi *)LANE >= r; }  /* the lanes from r on */

/* ---- the model ---- */

typedef struct { int L, d, V, S, H; } conf;
typedef struct { long ln1, qkv, proj, ln2, fc, out; } layer;          /* where they begin in the vector */
typedef struct { float *in, *h1, *qkv, *att, *mid, *h2, *u, *g, *P; } saved; /* what backward needs */
typedef struct {
    conf c; int Sp, hw; long np, wpe, lnf; layer *at; saved *s;
    const float *q;                                                   /* the weights as a step sees them */
    float *x, *hf, *dx, *dh, *d3, *d4, *dS, *turn, *logits, *sums, *scale, *packed, *turned, *round, *logp, *grad;
    float *stripes, *panels;                                          /* numbers of a pass, and wte, packed */
    int dots; float *r16, *p16, *q16, *pairs, *wrow, *wpair;          /* of bfloat16, and room for their pairs */
    int lack;                                                         /* memory that there was not */
} work;

/* Zeros for n numbers and some more; where there is no memory for them, 0 and a mark in `lack`. */
static float *room(long n, int *lack) {
    void *p = 0;
    if (*lack || posix_memalign(&p, 64, (n + 64)*4)) { *lack = 1; return 0; }
    return memset(p, 0, (n + 64)*4);
}

static layer place(const conf *c, int i) {
    long d = c->d, at = (long)c->V*d + (long)c->S*d + i*(12*d*d + 13*d);
    layer l = {at, at + 2*d, at + 2*d + 3*d*d + 3*d, 0, 0, 0};
    l.ln2 = l.proj + d*d + d; l.fc = l.ln2 + 2*d; l.out = l.fc + 4*d*d + 4*d;
    return l;
}

static void end(work *w) {
    if (!w) return;
    for (int i = 0; w->s && i < w->c.L; i++) {
        saved *s = w->s + i;
        free(s->in); free(s->h1); free(s->qkv); free(s->att); free(s->mid); free(s->h2); free(s->u); free(s->g);
        free(s->P);
    }
    float *all[] = {w->x, w->hf, w->dx, w->dh, w->d3, w->d4, w->dS, w->turn, w->logits, w->sums, w->scale, w->packed,
                    w->turned, w->round, w->logp, w->stripes, w->panels, w->r16, w->p16, w->q16, w->pairs, w->wrow, w->wpair};
    for (unsigned i = 0; i < sizeof(all)/sizeof(*all); i++) free(all[i]);
    free(w->at); free(w->s); free(w);
}

static work *begin(const int *cfg, int train, int bf16) { /* 0 where memory does not suffice */
    work *w = calloc(1, sizeof(work));
    if (!w) return 0;
    conf c = {cfg[0], cfg[1], cfg[2], cfg[3], cfg[4]};
    long d = c.d, S = c.S;
    int *no = &w->lack;
    w->c = c; w->Sp = (S + 15)/16*16; w->hw = d/c.H;
    w->wpe = (long)c.V*d; w->lnf = w->wpe + S*d + c.L*(12*d*d + 13*d); w->np = w->lnf + 2*d;
    w->at = calloc(c.L, sizeof(layer)); w->s = calloc(c.L, sizeof(saved));
    if (!w->at || !w->s) *no = 1;
    for (int i = 0; !*no && i < c.L; i++) {
        saved *s = w->s + i;
        w->at[i] = place(&c, i);
        s->in = room(S*d, no); s->h1 = room(S*d, no); s->qkv = room(3*S*d, no); s->att = room(S*d, no);
        s->mid = room(S*d, no); s->h2 = room(S*d, no); s->u = room(4*S*d, no); s->g = room(4*S*d, no);
        s->P = room((long)c.H*w->Sp*w->Sp, no);
    }
    w->x = room(S*d, no); w->hf = room(w->Sp*d, no); w->dx = room(S*d, no); w->dh = room(S*d, no);
    w->d3 = room(3*S*d, no); w->d4 = room(4*S*d, no); w->dS = room((long)w->Sp*w->Sp, no);
    w->turn = room(d*w->Sp, no); w->logits = room((w->Sp + 16L)*c.V, no); w->sums = room(17*(w->Sp + 16L), no);
    w->scale = room(w->Sp + 16, no); w->logp = room(S, no); w->packed = room(12*d*d*c.L, no);
    w->stripes = room(4*S*d, no);
    if (bf16 & 3) w->round = room(w->np, no);
    if (train && bf16 & 3 && bf16 & 4 && dots()) {
        long most = 4*S*d > PW*(w->Sp + 16L) ? 4*S*d : PW*(w->Sp + 16L);
        w->dots = 1;
        w->r16 = room(most/2, no); w->p16 = room(most/2 + 4*d + S*d, no); w->q16 = room(2*S*d + 4*d, no);
        w->pairs = room(2*d*d, no); w->wrow = room((long)c.V*d/2, no); w->wpair = room((c.V + 1L)/2*d, no);
    }
    if (train) { w->turned = room(12*d*d*c.L, no); w->panels = room((long)c.V*d, no); }
    if (*no) { end(w); return 0; }
    return w;
}

/* A weight as bfloat16 has it: the nearest one, or with `noise` one of its two neighbours, the nearer the likelier. */
static float bfloat16(float x, uint32_t noise, int stochastic) {
    uint32_t b; memcpy(&b, &x, 4);
    b = (b + (stochastic ? noise & 0xffff : 0x7fff + ((b >> 16) & 1))) & 0xffff0000u;
    memcpy(&x, &b, 4);
    return x;
}
static uint32_t mixed(uint32_t x) {              /* the last steps of MurmurHash3 (public domain) */
    x ^= x >> 16; x *= 0x85ebca6bu; x ^= x >> 13; x *= 0xc2b2ae35u; return x ^ x >> 16;
}

/* A matrix (in x out) of pairs for products with it and with its transpose, packed */
static void pack16(const work *w, int in, int out, const float *x, float *packed, float *turned) {
    in_pairs(in, out, x, w->pairs);
    pack(in/2, out, w->pairs, packed);
    in_rows((long)in*out, x, w->pairs);
    pack_turned(in, out/2, w->pairs, turned);
}
static void load16(const work *w) {
    long d = w->c.d;
    in_rows(w->c.V*d, w->q, w->wrow);
    in_pairs(w->c.V, d, w->q, w->wpair);
    for (int i = 0; i < w->c.L; i++) {
        layer l = w->at[i]; float *t = w->packed + i*12*d*d, *u = w->turned + i*12*d*d;
        pack16(w, d, 3*d, w->q + l.qkv, t, u); pack16(w, d, d, w->q + l.proj, t + 3*d*d, u + 3*d*d);
        pack16(w, d, 4*d, w->q + l.fc, t + 4*d*d, u + 4*d*d);
        pack16(w, 4*d, d, w->q + l.out, t + 8*d*d, u + 8*d*d);
    }
}

/* Weights as a step sees them (rounded to bfloat16 where asked), and copies in the order that products read them. */
static void load(work *w, const float *p, int bf16) {
    long d = w->c.d;
    if (bf16) for (long i = 0; i < w->np; i++) w->round[i] = bfloat16(p[i], 0, 0);
    w->q = bf16 ? w->round : p;
    if (w->dots) { load16(w); return; }
    for (long at = 0; w->panels && at < w->c.V; at += PW)
        pack(w->c.V - at < PW ? w->c.V - at : PW, d, w->q + at*d, w->panels + at*d);
    for (int i = 0; i < w->c.L; i++) {
        layer l = w->at[i]; float *t = w->packed + i*12*d*d;
        pack(d, 3*d, w->q + l.qkv, t); pack(d, d, w->q + l.proj, t + 3*d*d);
        pack(d, 4*d, w->q + l.fc, t + 4*d*d); pack(4*d, d, w->q + l.out, t + 8*d*d);
        if (!w->turned) continue;
        t = w->turned + i*12*d*d;
        pack_turned(d, 3*d, w->q + l.qkv, t); pack_turned(d, d, w->q + l.proj, t + 3*d*d);
        pack_turned(d, 4*d, w->q + l.fc, t + 4*d*d); pack_turned(4*d, d, w->q + l.out, t + 8*d*d);
    }
}

/* Mean, and 1/standard deviation, of d numbers, which are summed up in eight lanes */
INLINE void spread(int d, const float *x, float *mean, float *r) {
    v8 sum = {0}, var = {0};
    for (int k = 0; k < d; k += 8) sum += *(const v8 *)(x + k);
    *mean = sum8(sum)/d;
    for (int k = 0; k < d; k += 8) { v8 e = *(const v8 *)(x + k) - *mean; var += e*e; }
    *r = 1/sqrtf(sum8(var)/d + 1e-5f);
}

static void norm(int n, int d, const float *x, const float *g, float *y) {
    for (int i = 0; i < n; i++, x += d, y += d) {
        float mean, r;
        spread(d, x, &mean, &r);
        for (int k = 0; k < d; k++) y[k] = (x[k] - mean)*r*g[k] + g[d + k];
    }
}

/* dx += gradient through a norm of x, whose gain and shift get theirs in dg */
static void norm_back(int n, int d, const float *x, const float *g, const float *dy, float *dx, float *dg) {
    for (int i = 0; i < n; i++, x += d, dy += d, dx += d) {
        float mean, r;
        spread(d, x, &mean, &r);
        v8 a = {0}, b = {0};
        for (int k = 0; k < d; k += 8) {
            v8 h = (*(const v8 *)(x + k) - mean)*r, y = *(const v8 *)(dy + k), e = y**(const v8 *)(g + k);
            *(v8 *)(dg + k) += y*h; *(v8 *)(dg + d + k) += y;
            a += e; b += e*h;
        }
        float shift = sum8(a)/d, slope = sum8(b)/d;
        for (int k = 0; k < d; k++) dx[k] += r*(dy[k]*g[k] - shift - (x[k] - mean)*r*slope);
    }
}

/* y = x W + b; the bias lies where W ends, packed is W packed */
static void linear(const work *w, int n, int in, int out, const float *x, const float *wb, const float *packed,
                   float *y) {
    if (w->dots) {
        in_rows((long)n*in, x, w->r16);
        product16(n, out, in, w->r16, in/2, 1, packed, 0, y, out, wb + (long)in*out, 0);
    } else product(n, out, in, x, in, 1, packed, 0, y, out, wb + (long)in*out, 0);
}

static void linear_back(const work *w, int n, int in, int out, const float *x, const float *turned, const float *dy,
                        float *dx, float *dw) {
    float *db = dw + (long)in*out;
    int k = 0;
    if (w->dots) {
        in_pairs(n, in, x, w->p16); in_pairs(n, out, dy, w->q16); in_rows((long)n*out, dy, w->r16);
        if (out > 64) pack((n + 1)/2, out, w->q16, w->stripes);
        product16(in, out, n, w->p16, 1, in, out > 64 ? w->stripes : w->q16, out > 64 ? 0 : out, dw, out, dw, out);
        product16(n, in, out, w->r16, out/2, 1, turned, 0, dx, in, 0, 0);
    } else {
        if (out > 64) pack(n, out, dy, w->stripes); /* rows far apart are in each other's way in the cache */
        product(in, out, n, x, 1, in, out > 64 ? w->stripes : dy, out > 64 ? 0 : out, dw, out, dw, out);
        gemm(n, in, out, dy, out, 1, turned, 0, dx, in, 0);
    }
    for (; k + W <= out; k += W) {
        vf sum = *(vf *)(db + k);
        for (long i = 0; i < n; i++) sum += *(const vf *)(dy + i*out + k);
        *(vf *)(db + k) = sum;
    }
    for (long i = 0; i < n; i++) for (int j = k; j < out; j++) db[j] += dy[i*out + j];
}

INLINE int up16(int i) { return (i + 15)/16*16; }

/* Rows of m numbers, stride apart, turned: m x Sp, zeros behind the n-th column */
static void turn(const work *w, int n, int m, const float *x, int stride, float *t) {
    for (int k = 0; k < m; k++, t += w->Sp) {
        for (int j = 0; j < n; j++) t[j] = x[(long)j*stride + k];
        for (int j = n; j < up16(n); j++) t[j] = 0;
    }
}

/* Attention, head by head. Scores lie key by key, the queries side by side, so that a vector of queries goes through
   all steps together; keys later than a query have weight 0. */
static void attend(work *w, int n, saved *s) {
    int d = w->c.d, hw = w->hw;
    long Sp = w->Sp;
    float root = 1/sqrtf(hw);
    for (int h = 0; h < w->c.H; h++) {
        float *q = s->qkv + h*hw, *k = q + d, *v = k + d, *P = s->P + h*Sp*Sp;
        turn(w, n, hw, q, 3*d, w->turn);
        for (int j = 0; j < n; j += W)
            gemm(n - j < W ? n - j : W, up16(n) - j, hw, k + (long)j*3*d, 3*d, 1, w->turn + j, Sp,
                 P + j*Sp + j, Sp, 0);
        for (int i = 0; i < n; i += W) {
            int m = n - i < W ? n - i : W;
            float *p = P + i;
            vf top = all(-1e30f), two = top, sum[16] = {{0}};
            for (int j = 0; j < i; j += 2) {
                top = larger(*(vf *)(p + j*Sp), top); two = larger(*(vf *)(p + (j + 1)*Sp), two);
            }
            for (int r = 0; r < m; r++) top = larger(pick(from(r), *(vf *)(p + (i + r)*Sp), all(-1e30f)), top);
            top = larger(two, top);
            for (int j = 0; j < i; j += W) for (int r = 0; r < W; r++)
                sum[j%16 + r] += *(vf *)(p + (j + r)*Sp) = vexp_down(*(vf *)(p + (j + r)*Sp) - top, root);
            for (int r = 0; r < m; r++) {
                vf e = vexp_down(*(vf *)(p + (i + r)*Sp) - top, root);
                sum[i%16 + r] += *(vf *)(p + (i + r)*Sp) = (vf)(from(r) & (vi)e);
            }
            vf part = 1/sum_of_pairs(sum);
            for (int j = 0; j < i + m; j++) *(vf *)(p + j*Sp) *= part;
            gemm(m, hw, i + m, p, 1, Sp, v, 3*d, s->att + (long)i*d + h*hw, d, 0);
        }
    }
}

static void attend_back(work *w, int n, saved *s, const float *datt, float *dqkv) {
    int d = w->c.d, hw = w->hw;
    long Sp = w->Sp;
    float root = 1/sqrtf(hw);
    for (int h = 0; h < w->c.H; h++) {
        float *q = s->qkv + h*hw, *k = q + d, *v = k + d, *P = s->P + h*Sp*Sp, *dS = w->dS;
        float *dq = dqkv + h*hw, *dk = dq + d, *dv = dk + d;
        const float *o = datt + h*hw;
        turn(w, n, hw, o, d, w->turn);
        for (int j = 0; j < n; j += W)
            gemm(n - j < W ? n - j : W, up16(n) - j, hw, v + (long)j*3*d, 3*d, 1, w->turn + j, Sp,
                 dS + j*Sp + j, Sp, 0);
        for (int i = 0; i < n; i += W) {
            int m = n - i < W ? n - i : W;
            float *p = P + i, *e = dS + i;
            vf sum[16] = {{0}};
            for (int j = 0; j < i; j += W) for (int r = 0; r < W; r++)
                sum[j%16 + r] += *(vf *)(p + (j + r)*Sp)**(vf *)(e + (j + r)*Sp);
            for (int r = 0; r < m; r++) sum[i%16 + r] += *(vf *)(p + (i + r)*Sp)**(vf *)(e + (i + r)*Sp);
            vf dot = sum_of_halves(sum);
            for (int j = 0; j < i + m; j++)
                *(vf *)(e + j*Sp) = *(vf *)(p + j*Sp)*(*(vf *)(e + j*Sp) - dot)*root;
            gemm(m, hw, i + m, e, 1, Sp, k, 3*d, dq + (long)i*3*d, 3*d, 0);
        }
        for (int j = 0; j < n; j += W) {
            int m = n - j < W ? n - j : W;
            gemm(m, hw, n - j, dS + j*Sp + j, Sp, 1, q + (long)j*3*d, 3*d, dk + (long)j*3*d, 3*d, 0);
            gemm(m, hw, n - j, P + j*Sp + j, Sp, 1, o + (long)j*d, d, dv + (long)j*3*d, 3*d, 0);
        }
    }
}

#define GELU 0.79788456f
static void gelu(long n, const float *u, float *g) {  /* x sigmoid(2z), z = sqrt(2/pi) (x + 0.044715 x^3) */
    for (long i = 0; i < n; i += W) {
        vf x = *(vf *)(u + i);
        *(vf *)(g + i) = x/(1.f + vexp(-2.f*GELU*(x + .044715f*x*x*x)));
    }
}

static void gelu_back(long n, const float *u, float *dg) {
    for (long i = 0; i < n; i += W) {
        vf x = *(vf *)(u + i), s = 1.f/(1.f + vexp(-2.f*GELU*(x + .044715f*x*x*x)));
        vf slope = s + x*s*(1.f - s)*(2.f*GELU)*(1.f + 3.f*.044715f*x*x);
        *(vf *)(dg + i) *= slope;
    }
}

static void forward(work *w, int n, const int32_t *ids) {
    int d = w->c.d;
    const float *q = w->q;
    float *x = w->x;
    for (int t = 0; t < n; t++) for (int k = 0; k < d; k++)
        x[t*d + k] = q[w->wpe + (long)t*d + k] + (t ? q[(long)ids[t - 1]*d + k] : 0);
    for (int i = 0; i < w->c.L; i++) {
        layer l = w->at[i]; saved *s = w->s + i;
        const float *t = w->packed + 12L*d*d*i;
        memcpy(s->in, x, (long)n*d*4);
        norm(n, d, x, q + l.ln1, s->h1);
        linear(w, n, d, 3*d, s->h1, q + l.qkv, t, s->qkv);
        attend(w, n, s);
        linear(w, n, d, d, s->att, q + l.proj, t + 3L*d*d, w->dh);
        for (long k = 0; k < (long)n*d; k++) s->mid[k] = x[k] + w->dh[k];
        norm(n, d, s->mid, q + l.ln2, s->h2);
        linear(w, n, d, 4*d, s->h2, q + l.fc, t + 4L*d*d, s->u);
        gelu(4L*n*d, s->u, s->g);
        linear(w, n, 4*d, d, s->g, q + l.out, t + 8L*d*d, w->dh);
        for (long k = 0; k < (long)n*d; k++) x[k] = s->mid[k] + w->dh[k];
    }
    norm(n, d, x, q + w->lnf, w->hf);
}

/* Numbers from one row of scores to the next: never so many that rows are in each other's way in the cache. */
INLINE int apart(int n) { return up16(n)%32 ? up16(n) : up16(n) + 16; }

/* Scores panel by panel, token of the vocabulary by token, the positions side by side; then their exponentials in
   place. logp gets the log-probability of each token, and top whether it is the likeliest. */
static double head(work *w, int n, const int32_t *ids, float *logp, int8_t *top, double weight) {
    int d = w->c.d, V = w->c.V, N = apart(n);
    double total = 0;
    float *l = w->logits, *mx = w->sums + 16*N;
    if (w->dots) { in_rows((long)n*d, w->hf, w->r16); turn(w, n, d/2, w->r16, d/2, w->turn); }
    else {
        memset(w->hf + (long)n*d, 0, (up16(n) - n)*d*4L);
        pack_turned(up16(n), d, w->hf, w->turn);
    }
    for (int i = 0; i < up16(n); i += W) *(vf *)(mx + i) = all(-1e30f);
    for (int at = 0; at < V; at += PW) {
        int rows = V - at < PW ? V - at : PW;
        if (w->dots)
            product16(rows, up16(n), d, w->wrow + (long)at*d/2, d/2, 1, w->turn, w->Sp, l + (long)at*N, N, 0, 0);
        else gemm(rows, up16(n), d, w->q + (long)at*d, d, 1, w->turn, 0, l + (long)at*N, N, 0);
        for (int i = 0; i < up16(n); i += W) {
            vf y = *(vf *)(mx + i);
            for (int j = at; j < at + rows; j++) y = larger(*(vf *)(l + (long)j*N + i), y);
            *(vf *)(mx + i) = y;
        }
    }
    for (int i = 0; i < n; i++) {
        logp[i] = l[(long)ids[i]*N + i] - mx[i];
        if (top) top[i] = logp[i] >= 0;
    }
    memset(w->sums, 0, 16L*N*4);
    for (int at = 0; at < V; at += PW) for (int r = 0; r < 16; r++) for (int i = 0; i < up16(n); i += W) {
        vf e[4] = {{0}};
        for (int k = 0; k < 4; k++) if (at + 16*k + r < V) {
            vf *y = (vf *)(l + (at + 16L*k + r)*N + i);
            e[k] = *y = vexp_down(*y - *(vf *)(mx + i), 1);
        }
        *(vf *)(w->sums + r*N + i) += (e[3] + e[2]) + (e[1] + e[0]);
    }
    for (int i = 0; i < up16(n); i += W) {
        vf sum[16];
        for (int r = 0; r < 16; r++) sum[r] = *(vf *)(w->sums + r*N + i);
        *(vf *)(w->scale + i) = sum_of_halves(sum);
    }
    for (int i = 0; i < n; i++) {
        logp[i] -= logf(w->scale[i]);
        w->scale[i] = weight/w->scale[i];
        total += logp[i];
    }
    return total;
}

static void head_back(work *w, int n, const int32_t *ids, float weight, float *dh) {
    int d = w->c.d, V = w->c.V, N = apart(n);
    memset(dh, 0, (long)n*d*4);
    for (int i = 0; i < n; i++) w->logits[(long)ids[i]*N + i] -= weight/w->scale[i];
    if (w->dots) {
        float *pair = w->p16 + (n + 1)/2*d;
        in_pairs(n, d, w->hf, w->p16);
        for (int i = n; i < up16(n); i++) w->scale[i] = 0;
        for (int at = 0; at < V; at += PW) {
            int rows = V - at < PW ? V - at : PW;
            in_both(rows, up16(n), N, w->logits + (long)at*N, w->scale, w->r16, pair);
            product16(n, d, rows, pair, 1, N, w->wpair + (long)at/2*d, d, dh, d, dh, d);
            product16(rows, d, n, w->r16, N/2, 1, w->p16, d, w->grad + (long)at*d, d, w->grad + (long)at*d, d);
        }
        return;
    }
    for (int i = 0; i < n; i++) for (int k = 0; k < d; k++) w->hf[i*d + k] *= w->scale[i];
    pack(n, d, w->hf, w->stripes);
    for (int at = 0; at < V; at += PW) {
        float *l = w->logits + (long)at*N;
        int rows = V - at < PW ? V - at : PW;
        gemm(n, d, rows, l, 1, N, w->panels + (long)at*d, 0, dh, d, 1);
        gemm(rows, d, n, l, N, 1, w->stripes, 0, w->grad + (long)at*d, d, 1);
    }
    for (int i = 0; i < n; i++) for (int k = 0; k < d; k++) dh[i*d + k] *= w->scale[i];
}

static void backward(work *w, int n, const int32_t *ids, float weight) {
    int d = w->c.d;
    const float *q = w->q;
    float *g = w->grad, *dx = w->dx, *dh = w->dh;
    head_back(w, n, ids, weight, dh);
    memset(dx, 0, (long)n*d*4);
    norm_back(n, d, w->x, q + w->lnf, dh, dx, g + w->lnf);
    for (int i = w->c.L - 1; i >= 0; i--) {
        layer l = w->at[i]; saved *s = w->s + i;
        const float *t = w->turned + 12L*d*d*i;
        linear_back(w, n, 4*d, d, s->g, t + 8L*d*d, dx, w->d4, g + l.out);
        gelu_back(4L*n*d, s->u, w->d4);
        linear_back(w, n, d, 4*d, s->h2, t + 4L*d*d, w->d4, dh, g + l.fc);
        norm_back(n, d, s->mid, q + l.ln2, dh, dx, g + l.ln2);
        linear_back(w, n, d, d, s->att, t + 3L*d*d, dx, dh, g + l.proj);
        attend_back(w, n, s, dh, w->d3);
        linear_back(w, n, d, 3*d, s->h1, t, w->d3, dh, g + l.qkv);
        norm_back(n, d, s->in, q + l.ln1, dh, dx, g + l.ln1);
    }
    for (int p = 0; p < n; p++) for (int k = 0; k < d; k++) {
        g[w->wpe + (long)p*d + k] += dx[p*d + k];
        if (p) g[(long)ids[p - 1]*d + k] += dx[p*d + k];
    }
}

/* ---- training: the sequences of a batch are dealt out to lanes, and the lanes to threads. Each lane sums up its own
   gradient, and the lanes are added in their order, so that the result does not depend on the number of threads. ---- */

#define LANES 4

/* A place where threads wait for each other (pthread_barrier_t is not everywhere). */
typedef struct { pthread_mutex_t lock; pthread_cond_t all; int size, here; unsigned round; } gate;

static void meet(gate *g) {
    pthread_mutex_lock(&g->lock);
    unsigned round = g->round;
    if (++g->here == g->size) { g->here = 0; g->round++; pthread_cond_broadcast(&g->all); }
    else while (round == g->round) pthread_cond_wait(&g->all, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

typedef struct {
    const int *cfg; float *p, *m, *v; const int32_t *ids, *lens; const int64_t *order; int steps, batch;
    const float *lrs, *beta; float eps; long done; int bf16; double *losses;
    int threads, stop; work **w; float *grad[LANES]; double total[LANES]; gate gate;
} job;
typedef struct { job *j; int me; } part;

#define AT(x) (*(vf *)(x))
static void adam(const job *j, long from, long to, int step) {
    float b1 = j->beta[0], b2 = j->beta[1], t = j->done + step + 1, lr = j->lrs[step], eps = j->eps;
    float c1 = 1/(1 - powf(b1, t)), c2 = 1/(1 - powf(b2, t));
    float *restrict p = j->p, *restrict m = j->m, *restrict v = j->v;
    float *restrict g0 = j->grad[0], *restrict g1 = j->grad[1], *restrict g2 = j->grad[2], *restrict g3 = j->grad[3];
    long i = from;
    for (; i + W <= to; i += W) {
        vf g = (AT(g0 + i) + AT(g1 + i)) + (AT(g2 + i) + AT(g3 + i));
        vf x = AT(m + i) = b1*AT(m + i) + (1 - b1)*g, y = AT(v + i) = b2*AT(v + i) + (1 - b2)*g*g;
        AT(p + i) -= lr*(x*c1/(root(y*c2) + eps));
    }
    for (; i < to; i++) {
        float g = (g0[i] + g1[i]) + (g2[i] + g3[i]);
        m[i] = b1*m[i] + (1 - b1)*g;
        v[i] = b2*v[i] + (1 - b2)*g*g;
        p[i] -= lr*(m[i]*c1/(sqrtf(v[i]*c2) + eps));
    }
    if (j->bf16 > 1) for (long i = from; i < to; i++)
        p[i] = bfloat16(p[i], mixed(i ^ mixed(j->done + step + 1)), j->bf16 == 3);
}

static void *worker(void *arg) {
    job *j = ((part *)arg)->j;
    int me = ((part *)arg)->me;
    pthread_mutex_lock(&j->gate.lock);           /* until it is known how many there are */
    pthread_mutex_unlock(&j->gate.lock);
    work *w = j->w[me];
    float *logp = w->logp;
    long share = (w->np/j->threads + 16)/16*16, from = me*share, to = from + share < w->np ? from + share : w->np;
    for (int i = 0; i < j->steps; i++) {
        const int64_t *now = j->order + (long)i*j->batch;
        long tokens = 0;
        for (int b = 0; b < j->batch; b++) if (now[b] >= 0) tokens += j->lens[now[b]];
        load(w, j->p, j->bf16);
        for (int lane = me; lane < LANES; lane += j->threads) {
            double total = 0;
            w->grad = j->grad[lane];
            memset(w->grad, 0, w->np*4);
            for (int b = lane; b < j->batch; b += LANES) {
                if (now[b] < 0) continue;            /* the last batch of an epoch may be shorter */
                const int32_t *x = j->ids + now[b]*w->c.S;
                int n = j->lens[now[b]];
                forward(w, n, x);
                total += head(w, n, x, logp, 0, 1./tokens);
                backward(w, n, x, 1.f/tokens);
            }
            j->total[lane] = total;
        }
        meet(&j->gate);
        double total = 0;
        for (int lane = 0; lane < LANES; lane++) total -= j->total[lane]/(tokens ? tokens : 1); /* may be empty */
        if (!me) j->losses[i] = total;
        if (!isfinite(total)) { if (!me) j->stop = i; break; }
        adam(j, from, to, i);
        meet(&j->gate);
    }
    return 0;
}

/* Steps of Adam. order: the sequences of all steps, batch of them a step, -1 for none. losses: mean nats a token of
   each step. bf16: 0 for float32; 1 where steps see rounded weights; 2 and 3 where weights are stored in bfloat16, the
   nearest or by chance; 4 more where steps shall take their products in it, if they can. Returns the number of steps
   done: fewer when a loss is not a number; -1, with nothing done, where there is no memory. Where fewer threads can be
   had than asked for, these do all. */
int train(const int *cfg, float *p, float *m, float *v, const int32_t *ids, const int32_t *lens, const int64_t *order,
          int steps, int batch, const float *lrs, const float *beta, float eps, long done, int bf16,
          int threads, double *losses) {
    job j = {.cfg = cfg, .p = p, .m = m, .v = v, .ids = ids, .lens = lens, .order = order, .steps = steps,
             .batch = batch, .lrs = lrs, .beta = beta, .eps = eps, .done = done, .bf16 = bf16 & 3,
             .losses = losses, .threads = threads, .stop = steps};
    if (threads > LANES) threads = LANES;
    part parts[LANES];
    pthread_t ids_of[LANES];
    work *w[LANES] = {0};
    int lack = 0, n = 1;
    j.w = w;
    for (int k = 0; k < threads && !lack; k++) { lack = !(w[k] = begin(cfg, 1, bf16)); parts[k] = (part){&j, k}; }
    for (int k = 0; k < LANES && !lack; k++) j.grad[k] = room(w[0]->np, &lack);
    lack = lack || pthread_mutex_init(&j.gate.lock, 0) || pthread_cond_init(&j.gate.all, 0);
    if (!lack) {
        pthread_mutex_lock(&j.gate.lock);
        while (n < threads && !pthread_create(ids_of + n, 0, worker, parts + n)) n++;
        j.threads = j.gate.size = n;
        pthread_mutex_unlock(&j.gate.lock);
        worker(parts);
        for (int k = 1; k < n; k++) pthread_join(ids_of[k], 0);
        pthread_cond_destroy(&j.gate.all); pthread_mutex_destroy(&j.gate.lock);
    }
    for (int k = 0; k < threads; k++) end(w[k]);
    for (int k = 0; k < LANES; k++) free(j.grad[k]);
    return lack ? -1 : j.stop;
}

int width(void) { return WIDTH; }

/* Log-probability of each token of N sequences and whether it is the likeliest one, and where asked for (tests) the
   gradient of the sum of all. Returns 0, or -1 where there is no memory. */
int score(const int *cfg, const float *p, const int32_t *ids, const int32_t *lens, int N, int bf16, float *out,
          int8_t *top, float *grad) {
    work *w = begin(cfg, grad != 0, bf16);
    if (w && grad) w->grad = room(w->np, &w->lack);
    if (!w || w->lack) { end(w); return -1; }
    load(w, p, bf16);
    for (long i = 0; i < N; i++) {
        const int32_t *x = ids + i*w->c.S;
        forward(w, lens[i], x);
        head(w, lens[i], x, out + i*w->c.S, top ? top + i*w->c.S : 0, -1);
        if (grad) backward(w, lens[i], x, -1);
    }
    if (grad) { memcpy(grad, w->grad, w->np*4); free(w->grad); }
    end(w);
    return 0;
}
