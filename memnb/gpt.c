/* Tiny GPT-2s on a CPU: training and scoring, float32.

   The optional engine behind memnb.gpt.fit, which compiles this file at first use and checks it against torch.
   All weights of a model lie in one vector, in the order of gpt.shapes: wte (V x d), wpe (S x d), then for each layer
   ln1 (g, b), qkv (d x 3d, b), proj (d x d, b), ln2 (g, b), fc (d x 4d, b), out (4d x d, b), and the last norm (g, b).
   A sequence of n tokens is worked through alone, so that its activations stay in the cache. Position t reads token
   t-1 and predicts token t; position 0 reads none. d and the head width must be multiples of 8. */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define PW 64                      /* vocabulary columns of a panel */
typedef float vf __attribute__((vector_size(64), aligned(4)));
typedef float v8 __attribute__((vector_size(32), aligned(4)));
typedef int32_t vi __attribute__((vector_size(64), aligned(4)));

/* ---- small matrix products: C (M x N, rows cr apart) = [C +] A B ----
   Element (m, k) of A lies at a[m*ar + k*ak], so A may be a transpose; rows of B are bk apart. N is a multiple of 8. */

#define ROWS1(DO) DO(0)
#define ROWS2(DO) DO(0) DO(1)
#define ROWS8(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define ZERO(r) VEC s##r = {0}, t##r = {0};
#define MULT(r) { float e = a[(long)r*ar + (long)k*ak]; s##r += e*x; if (C == 2) t##r += e*y; }
#define SAVE(r) {                                                                                                \
    VEC *o = (VEC *)(c + (long)r*cr);                                                                            \
    o[0] = add ? o[0] + s##r : s##r;                                                                             \
    if (C == 2) o[1] = add ? o[1] + t##r : t##r;                                                                 \
}
#define TILE(NAME, T, ROWS)  /* some rows of C, one or two vectors wide, kept in registers over all k */         \
INLINE void NAME(const int C, int K, const float *a, int ar, int ak, const float *b, int bk, float *c, int cr,   \
                 int add) {                                                                                      \
    typedef T VEC;                                                                                               \
    ROWS(ZERO)                                                                                                   \
    for (long k = 0; k < K; k++) {                                                                               \
        VEC x = *(VEC *)(b + k*bk), y = C == 2 ? *(VEC *)(b + k*bk + sizeof(VEC)/4) : x;                         \
        ROWS(MULT)                                                                                               \
    }                                                                                                            \
    ROWS(SAVE)                                                                                                   \
}
TILE(wide8, vf, ROWS8) TILE(wide2, vf, ROWS2) TILE(wide1, vf, ROWS1)
TILE(slim8, v8, ROWS8) TILE(slim2, v8, ROWS2) TILE(slim1, v8, ROWS1)

#define STRIPE(F, C, w)                                                                                          \
    for (m = 0; m + 8 <= M; m += 8) F##8(C, K, a + (long)m*ar, ar, ak, b + n, bk, c + (long)m*cr + n, cr, add);  \
    for (; m + 2 <= M; m += 2) F##2(C, K, a + (long)m*ar, ar, ak, b + n, bk, c + (long)m*cr + n, cr, add);       \
    for (; m < M; m++) F##1(C, K, a + (long)m*ar, ar, ak, b + n, bk, c + (long)m*cr + n, cr, add);               \
    n += C*w;

static void gemm(int M, int N, int K, const float *a, int ar, int ak, const float *b, int bk, float *c, int cr,
                 int add) {
    int n = 0, m;
    while (n + 32 <= N) { STRIPE(wide, 2, 16) }
    while (n + 16 <= N) { STRIPE(wide, 1, 16) }
    while (n + 8 <= N) { STRIPE(slim, 1, 8) }
}

static void transpose(int rows, int cols, const float *a, float *out) {  /* out: cols x rows */
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) out[(long)j*rows + i] = a[(long)i*cols + j];
}

/* ---- exp, to float precision ---- */

INLINE vf pick(vi yes, vf a, vf b) { return (vf)((yes & (vi)a) | (~yes & (vi)b)); }
INLINE vf all(float x) { return (vf){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

INLINE vf vexp(vf x) {
    vf z = x*1.44269504f;
    z = pick(z > 126.f, all(126.f), z);
    z = pick(z < -126.f, all(-126.f), z);
    vi n = __builtin_convertvector(z + pick(z < 0.f, all(-.5f), all(.5f)), vi);
    vf f = z - __builtin_convertvector(n, vf);
    vf p = f*1.54035304e-4f + 1.33335581e-3f;
    p = p*f + 9.61812911e-3f;
    p = p*f + 5.55041087e-2f;
    p = p*f + 2.40226507e-1f;
    p = p*f + 6.93147181e-1f;
    p = p*f + 1.f;
    return (vf)((vi)p + (n << 23));
}

INLINE float hsum(vf x) { float s = 0; for (int i = 0; i < 16; i++) s += x[i]; return s; }
INLINE float hmax(vf x) { float s = x[0]; for (int i = 1; i < 16; i++) s = x[i] > s ? x[i] : s; return s; }

/* ---- the model ---- */

typedef struct { int L, d, V, S, H; } conf;
typedef struct { long ln1, qkv, proj, ln2, fc, out; } layer;          /* where they begin in the vector */
typedef struct { float *in, *h1, *qkv, *att, *mid, *h2, *u, *g, *P; } saved; /* what backward needs */
typedef struct {
    conf c; int Vp, Sp, hw; long np, wpe, lnf; layer *at; saved *s;
    float *x, *hf, *dx, *dh, *d3, *d4, *dS, *dP, *kt, *vt, *logits, *mx, *scale, *packed, *turned, *q, *logp, *grad;
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
    float *all[] = {w->x, w->hf, w->dx, w->dh, w->d3, w->d4, w->dS, w->dP, w->kt, w->vt, w->logits, w->mx, w->scale,
                    w->packed, w->turned, w->q, w->logp};
    for (unsigned i = 0; i < sizeof(all)/sizeof(*all); i++) free(all[i]);
    free(w->at); free(w->s); free(w);
}

static work *begin(const int *cfg, int train) { /* 0 where memory does not suffice */
    work *w = calloc(1, sizeof(work));
    if (!w) return 0;
    conf c = {cfg[0], cfg[1], cfg[2], cfg[3], cfg[4]};
    long d = c.d, S = c.S;
    int *no = &w->lack;
    w->c = c; w->Vp = (c.V + PW - 1)/PW*PW; w->Sp = (S + 15)/16*16; w->hw = d/c.H;
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
    w->x = room(S*d, no); w->hf = room(S*d, no); w->dx = room(S*d, no); w->dh = room(S*d, no);
    w->d3 = room(3*S*d, no); w->d4 = room(4*S*d, no); w->dS = room((long)w->Sp*w->Sp, no);
    w->dP = room((long)w->Sp*w->Sp, no); w->kt = room((long)w->hw*w->Sp, no); w->vt = room((long)w->hw*w->Sp, no);
    w->logits = room(S*w->Vp, no); w->mx = room(S*16, no); w->scale = room(S, no); w->logp = room(S, no);
    w->packed = room((long)w->Vp*d, no); w->q = room(w->np + PW*d, no);
    if (train) w->turned = room(12*d*d*c.L, no);
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

/* Weights as a step sees them (rounded to bfloat16 where asked), and copies in the order that products read them. */
static void load(work *w, const float *p, int bf16) {
    long d = w->c.d;
    if (bf16) for (long i = 0; i < w->np; i++) w->q[i] = bfloat16(p[i], 0, 0);
    else memcpy(w->q, p, w->np*4);
    for (long at = 0; at < w->Vp; at += PW)
        for (int j = 0; j < PW; j++) for (int k = 0; k < d; k++)
            w->packed[at*d + (long)k*PW + j] = at + j < w->c.V ? w->q[(at + j)*d + k] : 0;
    if (w->turned) for (int i = 0; i < w->c.L; i++) {
        layer l = w->at[i]; float *t = w->turned + i*12*d*d;
        transpose(d, 3*d, w->q + l.qkv, t); transpose(d, d, w->q + l.proj, t + 3*d*d);
        transpose(d, 4*d, w->q + l.fc, t + 4*d*d); transpose(4*d, d, w->q + l.out, t + 8*d*d);
    }
}

static void norm(int n, int d, const float *x, const float *g, float *y) {
    for (int i = 0; i < n; i++, x += d, y += d) {
        float mean = 0, var = 0;
        for (int k = 0; k < d; k++) mean += x[k];
        mean /= d;
        for (int k = 0; k < d; k++) var += (x[k] - mean)*(x[k] - mean);
        float r = 1/sqrtf(var/d + 1e-5f);
        for (int k = 0; k < d; k++) y[k] = (x[k] - mean)*r*g[k] + g[d + k];
    }
}

/* dx += gradient through a norm of x, whose gain and shift get theirs in dg */
static void norm_back(int n, int d, const float *x, const float *g, const float *dy, float *dx, float *dg) {
    for (int i = 0; i < n; i++, x += d, dy += d, dx += d) {
        float mean = 0, var = 0, a = 0, b = 0;
        for (int k = 0; k < d; k++) mean += x[k];
        mean /= d;
        for (int k = 0; k < d; k++) var += (x[k] - mean)*(x[k] - mean);
        float r = 1/sqrtf(var/d + 1e-5f);
        for (int k = 0; k < d; k++) {
            float h = (x[k] - mean)*r, e = dy[k]*g[k];
            dg[k] += dy[k]*h; dg[d + k] += dy[k];
            a += e; b += e*h;
        }
        a /= d; b /= d;
        for (int k = 0; k < d; k++) dx[k] += r*(dy[k]*g[k] - a - (x[k] - mean)*r*b);
    }
}

static void linear(int n, int in, int out, const float *x, const float *wb, float *y) { /* bias behind the weights */
    const float *b = wb + (long)in*out;
    for (int i = 0; i < n; i++) memcpy(y + (long)i*out, b, out*4);
    gemm(n, out, in, x, in, 1, wb, out, y, out, 1);
}

static void linear_back(int n, int in, int out, const float *x, const float *turned, const float *dy, float *dx,
                        float *dw) {
    gemm(in, out, n, x, 1, in, dy, out, dw, out, 1);
    float *db = dw + (long)in*out;
    for (int i = 0; i < n; i++) for (int k = 0; k < out; k++) db[k] += dy[(long)i*out + k];
    gemm(n, in, out, dy, out, 1, turned, in, dx, in, 0);
}

INLINE int up16(int i) { return (i + 15)/16*16; }

/* columns of rows i.. of an n x (3d) matrix, turned: hw x Sp */
static void turn(const work *w, int n, const float *x, int stride, float *t) {
    for (int k = 0; k < w->hw; k++) {
        for (int j = 0; j < n; j++) t[k*w->Sp + j] = x[(long)j*stride + k];
        for (int j = n; j < up16(n); j++) t[k*w->Sp + j] = 0;
    }
}

static void attend(work *w, int n, saved *s) {
    int d = w->c.d, hw = w->hw, Sp = w->Sp;
    float root = 1/sqrtf(hw);
    for (int h = 0; h < w->c.H; h++) {
        float *q = s->qkv + h*hw, *k = q + d, *v = k + d, *P = s->P + (long)h*Sp*Sp;
        turn(w, n, k, 3*d, w->kt);
        for (int i0 = 0; i0 < n; i0 += 16) {
            int m = n - i0 < 16 ? n - i0 : 16, cols = i0 + 16;
            gemm(m, cols, hw, q + (long)i0*3*d, 3*d, 1, w->kt, Sp, P + (long)i0*Sp, Sp, 0);
            for (int i = i0; i < i0 + m; i++) {
                float *p = P + (long)i*Sp;
                vf top = all(-1e30f), sum = all(0);
                for (int j = i + 1; j < cols; j++) p[j] = -1e30f;
                for (int j = 0; j < cols; j += 16) top = pick(*(vf *)(p + j) > top, *(vf *)(p + j), top);
                top = all(hmax(top));
                for (int j = 0; j < cols; j += 16) sum += *(vf *)(p + j) = vexp((*(vf *)(p + j) - top)*root);
                for (int j = i + 1; j < cols; j++) sum[0] -= p[j], p[j] = 0;
                float part = 1/hsum(sum);
                for (int j = 0; j < cols; j++) p[j] *= part;
            }
            gemm(m, hw, i0 + m, P + (long)i0*Sp, Sp, 1, v, 3*d, s->att + (long)i0*d + h*hw, d, 0);
        }
    }
}

static void attend_back(work *w, int n, saved *s, const float *datt, float *dqkv) {
    int d = w->c.d, hw = w->hw, Sp = w->Sp;
    float root = 1/sqrtf(hw);
    for (int h = 0; h < w->c.H; h++) {
        float *q = s->qkv + h*hw, *k = q + d, *v = k + d, *P = s->P + (long)h*Sp*Sp, *dS = w->dS;
        float *dq = dqkv + h*hw, *dk = dq + d, *dv = dk + d;
        const float *o = datt + h*hw;
        turn(w, n, v, 3*d, w->vt);
        for (int i0 = 0; i0 < n; i0 += 16) {
            int m = n - i0 < 16 ? n - i0 : 16, cols = i0 + 16;
            gemm(m, cols, hw, o + (long)i0*d, d, 1, w->vt, Sp, dS + (long)i0*Sp, Sp, 0);
            for (int i = i0; i < i0 + m; i++) {
                float *p = P + (long)i*Sp, *e = dS + (long)i*Sp, dot = 0;
                for (int j = 0; j < cols; j++) dot += p[j]*e[j];
                for (int j = 0; j < cols; j++) e[j] = p[j]*(e[j] - dot)*root;
            }
            gemm(m, hw, i0 + m, dS + (long)i0*Sp, Sp, 1, k, 3*d, dq + (long)i0*3*d, 3*d, 0);
        }
        for (int j0 = 0; j0 < n; j0 += 16) {
            int m = n - j0 < 16 ? n - j0 : 16;
            gemm(m, hw, n - j0, dS + (long)j0*Sp + j0, 1, Sp, q + (long)j0*3*d, 3*d, dk + (long)j0*3*d, 3*d, 0);
            gemm(m, hw, n - j0, P + (long)j0*Sp + j0, 1, Sp, o + (long)j0*d, d, dv + (long)j0*3*d, 3*d, 0);
        }
    }
}

#define GELU 0.79788456f
static void gelu(long n, const float *u, float *g) {  /* x sigmoid(2z), z = sqrt(2/pi) (x + 0.044715 x^3) */
    for (long i = 0; i < n; i += 16) {
        vf x = *(vf *)(u + i);
        *(vf *)(g + i) = x/(1.f + vexp(-2.f*GELU*(x + .044715f*x*x*x)));
    }
}

static void gelu_back(long n, const float *u, float *dg) {
    for (long i = 0; i < n; i += 16) {
        vf x = *(vf *)(u + i), s = 1.f/(1.f + vexp(-2.f*GELU*(x + .044715f*x*x*x)));
        vf slope = s + x*s*(1.f - s)*(2.f*GELU)*(1.f + 3.f*.044715f*x*x);
        *(vf *)(dg + i) *= slope;
    }
}

static void forward(work *w, int n, const int32_t *ids) {
    int d = w->c.d;
    float *q = w->q, *x = w->x;
    for (int t = 0; t < n; t++) for (int k = 0; k < d; k++)
        x[t*d + k] = q[w->wpe + (long)t*d + k] + (t ? q[(long)ids[t - 1]*d + k] : 0);
    for (int i = 0; i < w->c.L; i++) {
        layer l = w->at[i]; saved *s = w->s + i;
        memcpy(s->in, x, (long)n*d*4);
        norm(n, d, x, q + l.ln1, s->h1);
        linear(n, d, 3*d, s->h1, q + l.qkv, s->qkv);
        attend(w, n, s);
        linear(n, d, d, s->att, q + l.proj, w->dh);
        for (long k = 0; k < (long)n*d; k++) s->mid[k] = x[k] + w->dh[k];
        norm(n, d, s->mid, q + l.ln2, s->h2);
        linear(n, d, 4*d, s->h2, q + l.fc, s->u);
        gelu(4L*n*d, s->u, s->g);
        linear(n, 4*d, d, s->g, q + l.out, w->dh);
        for (long k = 0; k < (long)n*d; k++) x[k] = s->mid[k] + w->dh[k];
    }
    norm(n, d, x, q + w->lnf, w->hf);
}

/* Scores panel by panel, then their exponentials in place; logp gets the log-probability of each token, and top
   whether it is the likeliest. */
static double head(work *w, int n, const int32_t *ids, float *logp, int8_t *top, double weight) {
    int d = w->c.d, V = w->c.V;
    double total = 0;
    vf *mx = (vf *)w->mx;
    for (int i = 0; i < n; i++) mx[i] = all(-1e30f);
    for (int at = 0; at < w->Vp; at += PW) {
        float *l = w->logits + (long)at*n;
        gemm(n, PW, d, w->hf, d, 1, w->packed + (long)at*d, PW, l, PW, 0);
        if (at + PW > V) for (int i = 0; i < n; i++) for (int j = V - at; j < PW; j++) l[i*PW + j] = -1e30f;
        for (int i = 0; i < n; i++) for (int j = 0; j < PW; j += 16) {
            vf y = *(vf *)(l + i*PW + j);
            mx[i] = pick(y > mx[i], y, mx[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        w->scale[i] = hmax(mx[i]);
        logp[i] = w->logits[(long)(ids[i]/PW*PW)*n + i*PW + ids[i]%PW] - w->scale[i];
        if (top) top[i] = logp[i] >= 0;
        mx[i] = all(0);
    }
    for (int at = 0; at < w->Vp; at += PW) {
        float *l = w->logits + (long)at*n;
        for (int i = 0; i < n; i++) {
            vf sum = mx[i];
            for (int j = 0; j < PW; j += 16) {
                vf e = vexp(*(vf *)(l + i*PW + j) - w->scale[i]);
                *(vf *)(l + i*PW + j) = e;
                sum += e;
            }
            mx[i] = sum;
        }
    }
    for (int i = 0; i < n; i++) {
        float sum = hsum(mx[i]);
        logp[i] -= logf(sum);
        w->scale[i] = weight/sum;
        total += logp[i];
    }
    return total;
}

static void head_back(work *w, int n, const int32_t *ids, float weight, float *dh) {
    int d = w->c.d, V = w->c.V;
    memset(dh, 0, (long)n*d*4);
    for (int i = 0; i < n; i++) w->logits[(long)(ids[i]/PW*PW)*n + i*PW + ids[i]%PW] -= weight/w->scale[i];
    for (int i = 0; i < n; i++) for (int k = 0; k < d; k++) w->hf[i*d + k] *= w->scale[i];
    for (int at = 0; at < w->Vp; at += PW) {
        float *l = w->logits + (long)at*n;
        int cols = V - at < PW ? V - at : PW;    /* beyond them are the smallest numbers there are, which take longest */
        gemm(n, d, cols, l, PW, 1, w->q + (long)at*d, d, dh, d, 1);
        gemm(cols, d, n, l, 1, PW, w->hf, d, w->grad + (long)at*d, d, 1);
    }
    for (int i = 0; i < n; i++) for (int k = 0; k < d; k++) dh[i*d + k] *= w->scale[i];
}

static void backward(work *w, int n, const int32_t *ids, float weight) {
    int d = w->c.d;
    float *q = w->q, *g = w->grad, *dx = w->dx, *dh = w->dh;
    head_back(w, n, ids, weight, dh);
    memset(dx, 0, (long)n*d*4);
    norm_back(n, d, w->x, q + w->lnf, dh, dx, g + w->lnf);
    for (int i = w->c.L - 1; i >= 0; i--) {
        layer l = w->at[i]; saved *s = w->s + i;
        float *t = w->turned + 12L*d*d*i;
        linear_back(n, 4*d, d, s->g, t + 8L*d*d, dx, w->d4, g + l.out);
        gelu_back(4L*n*d, s->u, w->d4);
        linear_back(n, d, 4*d, s->h2, t + 4L*d*d, w->d4, dh, g + l.fc);
        norm_back(n, d, s->mid, q + l.ln2, dh, dx, g + l.ln2);
        linear_back(n, d, d, s->att, t + 3L*d*d, dx, dh, g + l.proj);
        attend_back(w, n, s, dh, w->d3);
        linear_back(n, d, 3*d, s->h1, t, w->d3, dh, g + l.qkv);
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
    const float *lrs, *beta; float eps, wd; long done; int bf16; double *losses;
    int threads, stop; work **w; float *grad[LANES]; double total[LANES]; gate gate;
} job;
typedef struct { job *j; int me; } part;

static void adam(const job *j, long from, long to, int step) {
    float b1 = j->beta[0], b2 = j->beta[1], t = j->done + step + 1, lr = j->lrs[step];
    float c1 = 1/(1 - powf(b1, t)), c2 = 1/(1 - powf(b2, t));
    float *p = j->p, *m = j->m, *v = j->v, *g = j->grad[0], **more = (float **)j->grad;
    for (long i = from; i < to; i++) g[i] = (g[i] + more[1][i]) + (more[2][i] + more[3][i]);
    for (long i = from; i < to; i++) {
        m[i] = b1*m[i] + (1 - b1)*g[i];
        v[i] = b2*v[i] + (1 - b2)*g[i]*g[i];
        p[i] -= lr*(m[i]*c1/(sqrtf(v[i]*c2) + j->eps) + j->wd*p[i]);
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
   nearest or by chance. Returns the number of steps done: fewer when a loss is not a number; -1, with nothing done, where there is
   no memory. Where fewer threads can be had than asked for, these do all. */
int train(const int *cfg, float *p, float *m, float *v, const int32_t *ids, const int32_t *lens, const int64_t *order,
          int steps, int batch, const float *lrs, const float *beta, float eps, float wd, long done, int bf16,
          int threads, double *losses) {
    job j = {.cfg = cfg, .p = p, .m = m, .v = v, .ids = ids, .lens = lens, .order = order, .steps = steps,
             .batch = batch, .lrs = lrs, .beta = beta, .eps = eps, .wd = wd, .done = done, .bf16 = bf16,
             .losses = losses, .threads = threads, .stop = steps};
    if (threads > LANES) threads = LANES;
    part parts[LANES];
    pthread_t ids_of[LANES];
    work *w[LANES] = {0};
    int lack = 0, n = 1;
    j.w = w;
    for (int k = 0; k < threads && !lack; k++) { lack = !(w[k] = begin(cfg, 1)); parts[k] = (part){&j, k}; }
    for (int k = 0; k < LANES && !lack; k++) j.grad[k] = room(w[0]->np + PW*cfg[1], &lack);
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

/* Log-probability of each token of N sequences and whether it is the likeliest one, and where asked for (tests) the
   gradient of the sum of all. Returns 0, or -1 where there is no memory. */
int score(const int *cfg, const float *p, const int32_t *ids, const int32_t *lens, int N, int bf16, float *out,
          int8_t *top, float *grad) {
    work *w = begin(cfg, grad != 0);
    if (w && grad) w->grad = room(w->np + PW*cfg[1], &w->lack);
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
