#![allow(missing_docs, clippy::disallowed_methods)]
use std::{future::Future, pin::{Pin, pin}, sync::Arc, task::{Context, Poll, Wake, Waker}, time::{Duration, Instant}};
use outlast_core::*;
use outlast_core::turn::From;
use outlast_sqlite::*;
#[derive(Debug)] struct C;
impl Clock for C {
    fn now(&self) -> Timestamp { Timestamp::from_micros(std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64) }
    fn sleep_until(&self, _: Timestamp) -> Pin<Box<dyn Future<Output=Busy>+Send>> { Box::pin(std::future::pending()) }
    fn busy(&self) -> Busy { Busy::uncounted() }
    fn is_virtual(&self) -> bool { false }
}
struct T(std::thread::Thread);
impl Wake for T { fn wake(self: Arc<Self>) { self.0.unpark() } }
fn block<F: Future>(f: F) -> F::Output { let mut f = pin!(f); let w: Waker = Arc::new(T(std::thread::current())).into(); let mut cx = Context::from_waker(&w);
    loop { if let Poll::Ready(x) = f.as_mut().poll(&mut cx) { return x } std::thread::park() } }
fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let path = format!("{dir}/m.db");
    let world = SqliteWorld::open(&path, SqliteOptions::new(Arc::new(C))).unwrap();
    let mut n = 0u128; let base = (1_893_456_000_000u128) << 80; let mut id = move || { n += 1; base + n };
    let s = SessionId::from_bits(id());
    let code: Arc<[Code]> = vec![Code{workflow:"w".into(),version:1}].into();
    block(world.join(Join{session:s,host:"h".into(),pid:1,build:"b1".into(),code:code.clone(),time:Duration::from_secs(1000)})).unwrap();
    let build: Arc<str> = "b1".into();
    let p = Payload::json(&serde_json::json!({"order": 42, "cents": 1999, "email": "someone@example.com"})).unwrap();
    let mk_start = |id: &mut dyn FnMut()->u128| Start{run:RunId::from_bits(id()),turn:TurnId::from_bits(id()),workflow:"w".into(),version:1,key:None,input:p.clone(),headers:Headers::new()};
    let step = |k: u32| vec![Event::StepCompleted{op:OpNumber(k),output:p.clone()},Event::StepStarted{op:OpNumber(k+1),name:"charge".into(),input:p.clone()}];
    // 1000 runs held, 100 turns each
    let mut heads: Vec<(RunId, TurnId, u64)> = vec![];
    let t0 = Instant::now();
    let turns: Vec<Turn> = (0..1000).map(|_| { let st = mk_start(&mut id); let t = TurnId::from_bits(id()); heads.push((st.run,t,2));
        Turn{run:st.run,id:t,seq:0,at:C.now(),build:build.clone(),events:vec![st.event(),Event::StepStarted{op:OpNumber(0),name:"charge".into(),input:p.clone()}],from:From::Start(st),consumed:0,fired_until:None,clears_crashes:false,then:Then::Hold} }).collect();
    for a in block(world.commit(s, turns)).unwrap() { a.unwrap(); }
    println!("1000 starts+hold in one batch: {:?}", t0.elapsed());
    let t0 = Instant::now(); let mut mk = Duration::ZERO;
    for k in 0..100u32 {
        let t1 = Instant::now();
        let turns: Vec<Turn> = heads.iter_mut().map(|h| { let t = TurnId::from_bits(id()); let turn = Turn{run:h.0,id:t,from:From::Turn(h.1),seq:h.2,at:C.now(),build:build.clone(),events:step(k),consumed:0,fired_until:None,clears_crashes:false,then:Then::Hold}; h.1=t; h.2+=2; turn }).collect();
        mk += t1.elapsed();
        for a in block(world.commit(s, turns)).unwrap() { a.unwrap(); }
    }
    let e = t0.elapsed(); println!("100k hold turns in batches of 1000: {:?} = {:.0} turns/s (making turns {:?})", e, 1e5/e.as_secs_f64(), mk);
    let end = |h: &(RunId,TurnId,u64), t: TurnId| Turn{run:h.0,id:t,from:From::Turn(h.1),seq:h.2,at:C.now(),build:build.clone(),events:vec![Event::RunCompleted{output:p.clone()}],consumed:0,fired_until:None,clears_crashes:false,then:Then::End(Status::Completed)};
    let t0 = Instant::now(); let turns: Vec<_> = heads.iter().map(|h| end(h, TurnId::from_bits(id()))).collect();
    for a in block(world.commit(s, turns)).unwrap() { a.unwrap(); }
    println!("1000 ends: {:?}", t0.elapsed());
    // 3-step runs: 25k runs, pipeline of batches of 1000: start+s0, s1, s2, end  = 4 turns
    let t0 = Instant::now(); let runs = 25;
    for _ in 0..runs { 
        let mut hs: Vec<(RunId, TurnId, u64)> = vec![];
        let turns: Vec<Turn> = (0..1000).map(|_| { let st = mk_start(&mut id); let t = TurnId::from_bits(id()); hs.push((st.run,t,2));
        Turn{run:st.run,id:t,seq:0,at:C.now(),build:build.clone(),events:vec![st.event(),Event::StepStarted{op:OpNumber(0),name:"charge".into(),input:p.clone()}],from:From::Start(st),consumed:0,fired_until:None,clears_crashes:false,then:Then::Hold} }).collect();
        for a in block(world.commit(s, turns)).unwrap() { a.unwrap(); }
        for k in 0..2 { let turns: Vec<Turn> = hs.iter_mut().map(|h| { let t = TurnId::from_bits(id()); let turn = Turn{run:h.0,id:t,from:From::Turn(h.1),seq:h.2,at:C.now(),build:build.clone(),events:step(k),consumed:0,fired_until:None,clears_crashes:false,then:Then::Hold}; h.1=t; h.2+=2; turn }).collect();
          for a in block(world.commit(s, turns)).unwrap() { a.unwrap(); } }
        let turns: Vec<_> = hs.iter().map(|h| end(h, TurnId::from_bits(id()))).collect();
        for a in block(world.commit(s, turns)).unwrap() { a.unwrap(); }
    }
    let e = t0.elapsed(); println!("{}k 3-step runs (4 turns each) in batches of 1000: {:?} = {:.0} turns/s, {:.0} steps/s", runs, e, runs as f64*4000.0/e.as_secs_f64(), runs as f64*3000.0/e.as_secs_f64());
    // single
    let st = mk_start(&mut id); let mut h = (st.run, TurnId::from_bits(id()), 1u64);
    block(world.commit(s, vec![Turn{run:st.run,id:h.1,seq:0,at:C.now(),build:build.clone(),events:vec![st.event()],from:From::Start(st),consumed:0,fired_until:None,clears_crashes:false,then:Then::Hold}])).unwrap().remove(0).unwrap();
    let n1 = 5000; let mut lat = Vec::new();
    for k in 0..n1 { let t = TurnId::from_bits(id()); let turn = Turn{run:h.0,id:t,from:From::Turn(h.1),seq:h.2,at:C.now(),build:build.clone(),events:step(k),consumed:0,fired_until:None,clears_crashes:false,then:Then::Hold}; h.1=t; h.2+=2;
        let t0 = Instant::now(); block(world.commit(s, vec![turn])).unwrap().remove(0).unwrap(); lat.push(t0.elapsed()); }
    lat.sort(); println!("single commit: p50 {:?} p90 {:?} p99 {:?} mean {:?}", lat[lat.len()/2], lat[lat.len()*9/10], lat[lat.len()*99/100], lat.iter().sum::<Duration>()/n1);
    // empty claim
    let req = ClaimRequest{limit:100,code:code.clone(),build:build.clone(),format:1,suspect:true,known:Arc::new(|_,_|false)};
    let t0 = Instant::now(); for _ in 0..2000 { block(world.claim(s, req.clone())).unwrap(); } println!("empty claim: {:?}", t0.elapsed()/2000);
    let t0 = Instant::now(); for _ in 0..1000 { let st = mk_start(&mut id); block(world.start(vec![st])).unwrap(); } println!("single start: {:?}", t0.elapsed()/1000);
    let t0 = Instant::now(); let mut c = 0; loop { let w = block(world.claim(s, req.clone())).unwrap(); if w.claimed.is_empty() {break} c += w.claimed.len(); } println!("claimed {c} in {:?}", t0.elapsed());
    drop(world);
    // raw
    let c = rusqlite::Connection::open(format!("{dir}/raw.db")).unwrap();
    c.execute_batch("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4096; CREATE TABLE turns(run TEXT, seq INTEGER, id TEXT, at INTEGER, build TEXT, events TEXT, PRIMARY KEY(run,seq)) STRICT, WITHOUT ROWID").unwrap();
    let mut ev = String::new(); Event::write_all(&step(1), &mut ev);
    let mut lat = Vec::new();
    for k in 0..n1 { let t0 = Instant::now(); c.execute_batch("BEGIN IMMEDIATE").unwrap(); c.prepare_cached("INSERT INTO turns VALUES(?,?,?,?,?,?)").unwrap().execute(rusqlite::params!["run_00000000000000000000000001", k*2, "turn_00000000000000000000000001", 5, "b1", ev]).unwrap(); c.execute_batch("COMMIT").unwrap(); lat.push(t0.elapsed()); }
    lat.sort(); println!("raw one-row commit: p50 {:?} p90 {:?} p99 {:?} mean {:?}", lat[lat.len()/2], lat[lat.len()*9/10], lat[lat.len()*99/100], lat.iter().sum::<Duration>()/n1);
    let t0 = Instant::now(); for b in 0..100 { c.execute_batch("BEGIN IMMEDIATE").unwrap(); let mut st = c.prepare_cached("INSERT INTO turns VALUES(?,?,?,?,?,?)").unwrap(); for r in 0..1000 { st.execute(rusqlite::params![RunId::from_bits(base+r).to_string(), b*2, "turn_00000000000000000000000001", 5, "b1", ev]).unwrap(); } drop(st); c.execute_batch("COMMIT").unwrap(); }
    let e = t0.elapsed(); println!("raw 100k rows in batches of 1000: {:?} = {:.0} rows/s", e, 1e5/e.as_secs_f64());
}
