//! The order to stop, which reaches every connection.

use tokio::sync::watch;

/// Gives the order.
#[derive(Debug)]
pub struct Trigger(watch::Sender<Order>);

/// Hears the order.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<Order>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Run,
    Stop,
}

impl Trigger {
    /// A trigger and what hears it.
    pub fn new() -> (Self, Shutdown) {
        let (sender, receiver) = watch::channel(Order::Run);
        (Self(sender), Shutdown(receiver))
    }

    /// Gives the order.
    pub fn stop(&self) {
        self.0.send_replace(Order::Stop);
    }
}

impl Shutdown {
    /// Returns once the order was given, or whoever could give it is gone.
    pub async fn ordered(&mut self) {
        // An error means that the trigger is gone, which stops us as well.
        let _ = self.0.wait_for(|order| *order == Order::Stop).await;
    }

    /// Whether the order was given.
    pub fn is_ordered(&self) -> bool {
        *self.0.borrow() == Order::Stop
    }
}
